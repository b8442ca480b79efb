"""Configurations: what is derived, what is refused and why, and the dictionaries of checkpoints."""

import json
import tracemalloc

import numpy as np
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
        {"model_type": "mistral", "sliding_window": 3},
        {"model_type": "mistral"},
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


def test_none_counts_as_absent():
    given = {**SIZES, "model_type": "llama", "rope_theta": 5e5}
    plain = decoder.Config.from_dict({**given, "rope_parameters": {"rope_type": "default", "rope_theta": None}})
    assert plain == decoder.Config(**SIZES, rope_theta=5e5)
    linear = {"type": "linear", "rope_type": None, "factor": 4.0}
    for config in (
        decoder.Config.from_dict({**given, "rope_scaling": linear}),
        decoder.Config(**SIZES, rope_theta=5e5, rope_scaling=linear),
        decoder.Config(**SIZES, rope_scaling={**linear, "rope_theta": 5e5}),
    ):
        assert config.rope_theta == 5e5
        np.testing.assert_array_equal(config.rotary(1).inverse_frequencies, plain.rotary(1).inverse_frequencies / 4)


def test_a_window_that_is_not_used_says_nothing():
    given = {**SIZES, "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1}
    assert decoder.Config.from_dict(given) == decoder.Config(**SIZES, model_type="qwen2")
    assert decoder.Config.from_dict({**SIZES, "model_type": "mistral", "sliding_window": 4}).sliding_window == 4


def test_the_length_before_scaling_may_stand_outside():
    scaling = {"type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 4.0]}
    config = decoder.Config.from_dict(
        {**SIZES, "model_type": "llama", "rope_scaling": scaling, "original_max_position_embeddings": 8}
    )
    np.testing.assert_array_equal(config.rotary(8).inverse_frequencies, [2, 4] * config.rotary(9).inverse_frequencies)


def test_numbers_of_numpy_become_python_s():
    config = decoder.Config(
        **{name: np.int64(size) for name, size in SIZES.items()}, rope_theta=np.float32(500),
        tie_word_embeddings=np.True_, eos_token_id=np.array([1, 2]),
        rope_scaling={"rope_type": "linear", "factor": np.float32(2)},
    )  # fmt: skip
    assert config == decoder.Config(
        **SIZES, rope_theta=500.0, tie_word_embeddings=True, eos_token_id=[1, 2],
        rope_scaling={"rope_type": "linear", "factor": 2.0},
    )  # fmt: skip
    assert type(config.vocab_size) is int
    assert decoder.Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    config.rotary(3)


def test_tables_reach_no_further_than_they_are_used():
    config = decoder.Config(**{**SIZES, "head_dim": 128, "max_position_embeddings": 131_072})
    assert config.rotary(100).max_positions == 128
    assert config.rotary(129).max_positions == 256
    assert config.rotary(65).cosines is config.rotary(128).cosines
    small = decoder.Config(**SIZES, max_position_embeddings=100)
    assert small.rotary(3).max_positions == 64
    assert small.rotary(99).max_positions == small.rotary(10**9).max_positions == 100
    np.testing.assert_array_equal(small.rotary(3).sines, small.rotary(100).sines[:64])


@pytest.mark.parametrize("scaling", [{"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "yarn", "factor": 2.0}])
def test_frequencies_are_those_of_max_position_embeddings_whatever_the_length(scaling):
    config = decoder.Config(**SIZES, rope_scaling=scaling, max_position_embeddings=512)
    np.testing.assert_array_equal(config.rotary(1).inverse_frequencies, config.rotary(512).inverse_frequencies)


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
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, "whole heads"),
        ({"rope_scaling": {"factor": 2.0}}, "unknown key 'factor' for scaling type 'default'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "max_position_embeddings": 9}}, "another max_pos"),
        ({"rope_theta": 100.0, "rope_scaling": {"rope_theta": 500.0}}, "rope_theta is 100.0, but rope_scaling has 500"),
        ({"vocab_size": np.array([9])}, "vocab_size must be an integer"),
        ({"model_type": "gpt2"}, "unknown architecture 'gpt2': known are llama, mistral, qwen2"),
        ({"model_type": "llama", "sliding_window": 4}, "sliding_window is a setting of mistral's, not of llama's"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window must be an integer from 1 to"),
        ({"model_type": "mistral", "attention_bias": True}, "mistral's projections have no biases"),
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
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "whole heads"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}, "unknown key 'full_attention'"),
    ],
)
def test_dictionaries_that_describe_another_model(changes, words):
    with pytest.raises(ValueError, match=words):
        decoder.Config.from_dict({**GIVEN, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": ["llama"]}, r"unknown architecture \['llama'\]"),
        (
            {"model_type": None, "architectures": "LlamaForCausalLM", "hidden_size": []},
            "hidden_size must be an integer",
        ),
        ({"model_type": None, "architectures": [[3]]}, r"unknown architecture \[3\]"),
        ({"head_dim": 10**6}, "head_dim must be an integer from 1 to 65536"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be an integer from 1 to 10000"),
        ({"vocab_size": 10**30}, "vocab_size must be an integer from 1 to 2147483647"),
        ({"eos_token_id": [1, "end"]}, r"eos_token_id must be a token's number, or a list of them, not \[1, 'end'\]"),
        ({"rope_parameters": {"rope_type": ["linear"]}}, r"unknown scaling type \['linear'\]"),
    ],
)
def test_hostile_configurations_are_refused_before_memory_is_taken(changes, words):
    with pytest.raises(ValueError, match=words):
        decoder.Config.from_dict({**SIZES, "model_type": "llama", **changes})


def test_a_long_context_takes_no_memory_until_it_is_used():
    tracemalloc.start()
    decoder.Config.from_dict({**GIVEN, "max_position_embeddings": 2**31 - 1})
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("given", ["{", [1], None, 3])
def test_a_configuration_that_is_no_object(given):
    with pytest.raises(ValueError, match="must be an object of keys and values"):
        decoder.Config.from_dict(given)
