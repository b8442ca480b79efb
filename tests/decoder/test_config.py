"""Configurations: what is derived, what is refused and why, and the dictionaries of checkpoints."""

import json

import pytest
from oracle import DATA

from npgrad import decoder

SIZES = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 3}
GIVEN = json.loads((DATA / "tiny_llama" / "base" / "config.json").read_text())
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}  # fmt: skip


def test_what_is_not_given_is_derived():
    config = decoder.Config(**SIZES)
    assert (config.num_key_value_heads, config.head_dim) == (3, 4)
    assert decoder.Config(**SIZES, head_dim=6).head_dim == 6


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_scaling": LLAMA3, "rope_theta": 500.0, "tie_word_embeddings": True},
        {"attention_bias": True, "head_dim": 6, "eos_token_id": [1, 2]},
        {"model_type": "qwen2", "num_key_value_heads": 1, "rms_norm_eps": 1e-5},
    ],
)
def test_a_dictionary_and_back(changes):
    config = decoder.Config(**SIZES, **changes)
    assert decoder.Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_both_spellings_of_scaling():
    old = {**SIZES, "model_type": "llama", "rope_theta": 500.0, "rope_scaling": {**LLAMA3, "type": "llama3"}}
    new = {**SIZES, "model_type": "llama", "rope_parameters": {**LLAMA3, "rope_theta": 500.0}}
    old_config, new_config = decoder.Config.from_dict(old), decoder.Config.from_dict(new)
    assert old_config.rope_theta == new_config.rope_theta == 500.0
    assert (old_config.rotary(1).inverse_frequencies == new_config.rotary(1).inverse_frequencies).all()
    plain = decoder.Config.from_dict({**SIZES, "model_type": "llama"})
    assert plain == decoder.Config(**SIZES)
    assert (plain.rotary(1).inverse_frequencies != old_config.rotary(1).inverse_frequencies).any()


def test_an_architecture_may_be_named_instead_of_the_model_type():
    given = {**SIZES, "architectures": ["Qwen2ForCausalLM"]}
    assert decoder.Config.from_dict(given).model_type == "qwen2"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads must be an integer from 1 to 2147483647, not 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be an integer from 1 to 10000, not True"),
        ({"vocab_size": 7.0}, "vocab_size must be an integer"),
        ({"hidden_size": "12"}, "hidden_size must be an integer"),
        ({"hidden_size": 20}, "hidden_size 20 is not a multiple of num_attention_heads 3: give head_dim"),
        ({"num_key_value_heads": 2}, "num_attention_heads 3 is not a multiple of num_key_value_heads 2"),
        ({"head_dim": 5}, "must be even, not 5"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps must be a small number"),
        ({"rope_theta": float("nan")}, "finite number above 0, not nan"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be True or False, not 'yes'"),
        ({"rope_scaling": "yarn"}, "rope_scaling must be a dict"),
        ({"rope_scaling": {"rope_type": "guess"}}, "unknown scaling type 'guess'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}, "whole heads"),
        ({"model_type": "gpt2"}, "unknown architecture 'gpt2': known are llama, qwen2"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(changes, words):
    with pytest.raises(ValueError, match=words):
        decoder.Config(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mixtral"}, "unknown architecture 'mixtral'"),
        ({"model_type": None, "architectures": ["GPT2LMHeadModel"]}, "unknown architecture 'GPT2LMHeadModel'"),
        ({"model_type": None, "architectures": None}, "unknown architecture 'none given'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ({"mlp_bias": True}, "mlp_bias True is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"vocab_size": None, "hidden_size": None}, "the config has no vocab_size, hidden_size"),
        ({"rope_parameters": [1]}, "must be an object"),
    ],
)
def test_dictionaries_that_describe_another_model(changes, words):
    with pytest.raises(ValueError, match=words):
        decoder.Config.from_dict({**GIVEN, **changes})
