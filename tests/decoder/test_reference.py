"""The decoder against checkpoints that transformers made: logits, hidden states, losses, every gradient, tokens."""

import json

import numpy as np
import pytest
from oracle import DATA
from safetensors.numpy import load_file

import npgrad as ng
from npgrad import decoder

FOLDERS = {name: DATA / "tiny_llama" / name for name in ("base", "llama3_tied", "qwen2_bias", "base_bf16")}
IO = {name: dict(np.load(folder / "io.npz")) for name, folder in FOLDERS.items()}
models = pytest.mark.parametrize("name", ["base", "llama3_tied", "qwen2_bias"])


def close(found, expected, tolerance):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@models
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_logits(name, dtype, tolerance):
    config, params = decoder.load(FOLDERS[name], dtype)
    logits = decoder.forward(config, params, IO[name]["input_ids"])
    assert logits.dtype == dtype
    close(logits, IO[name]["logits_" + np.dtype(dtype).name], tolerance)


def test_logits_of_bfloat16_weights():
    config, params = decoder.load(FOLDERS["base_bf16"], np.float64)
    close(decoder.forward(config, params, IO["base_bf16"]["input_ids"]), IO["base_bf16"]["logits_float64"], 1e-12)
    kept = decoder.load(FOLDERS["base_bf16"])[1]
    assert {p.dtype for p in ng.tree.leaves(kept)} == {np.dtype(np.float32)}


@models
def test_hidden_states(name):
    config, params = decoder.load(FOLDERS[name], np.float64)
    states = list(decoder.hidden_states(config, params, IO[name]["input_ids"]))
    assert len(states) == 3
    for i, state in enumerate(states):
        close(state, IO[name][f"hidden_{i}"], 1e-12)


@models
def test_the_loss_and_every_gradient(name):
    config, params = decoder.load(FOLDERS[name], np.float64)
    ids, labels = IO[name]["input_ids"], IO[name]["labels"]
    assert (labels[:, 1:] == -100).any()
    loss, gradient = ng.value_and_grad(decoder.loss, 1)(config, params, ids[:, :-1], labels[:, 1:])
    close(loss, IO[name]["loss_float64"], 1e-12)
    expected, found = load_file(FOLDERS[name] / "grads_float64.safetensors"), decoder.to_llama(config, gradient)
    assert found.keys() == expected.keys()
    for tensor, g in expected.items():
        close(found[tensor], g, 1e-9)


@models
def test_gradients_in_float32(name):
    config, params = decoder.load(FOLDERS[name])
    ids, labels = IO[name]["input_ids"], IO[name]["labels"]
    loss, gradient = ng.value_and_grad(decoder.loss, 1)(config, params, ids[:, :-1], labels[:, 1:])
    close(loss, IO[name]["loss_float32"], 1e-6)
    expected = load_file(FOLDERS[name] / "grads_float64.safetensors")
    for tensor, g in decoder.to_llama(config, gradient).items():
        assert g.dtype == np.float32
        close(g, expected[tensor], 2e-5)


@models
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_greedy_tokens(name, dtype):
    config, params = decoder.load(FOLDERS[name], dtype)
    prompt, expected = IO[name]["prompt"][0], IO[name]["generated"][0]
    options = {"max_new_tokens": len(expected) - len(prompt)}
    assert list(decoder.generate(config, params, prompt, **options)) == expected[len(prompt) :].tolist()
    until = list(decoder.generate(config, params, prompt, stop=[int(IO[name]["eos_used"])], **options))
    assert until == IO[name]["generated_until_eos"][0, len(prompt) :].tolist()


@models
def test_logits_of_each_generated_token_come_from_the_cache(name):
    config, params = decoder.load(FOLDERS[name])
    tokens, expected = IO[name]["generated"], IO[name]["generation_logits_float32"]
    cache, start = decoder.Cache(config, capacity=tokens.shape[1]), IO[name]["prompt"].shape[1]
    steps = [decoder.forward(config, params, tokens[:, :start], cache=cache)[0, -1]]
    steps += [
        decoder.forward(config, params, tokens[:, i : i + 1], cache=cache)[0, 0] for i in range(start, start + 19)
    ]
    close(np.array(steps), expected, 1e-5)


@models
def test_a_batch_padded_on_the_left(name):
    config, params = decoder.load(FOLDERS[name], np.float64)
    ids, mask = IO[name]["padded_ids"], IO[name]["padded_mask"].astype(bool)
    assert not mask.all()
    logits = decoder.forward(config, params, ids, positions=IO[name]["padded_positions"], mask=mask)
    assert np.isfinite(logits).all()
    close(logits[mask], IO[name]["padded_logits_float64"][mask], 1e-12)


@models
def test_both_spellings_of_a_configuration_are_one(name):
    old = decoder.Config.from_dict(json.loads((FOLDERS[name] / "config_v4.json").read_text()))
    assert old == decoder.Config.from_dict(json.loads((FOLDERS[name] / "config.json").read_text()))
    np.testing.assert_allclose(old.rotary(8).inverse_frequencies, IO[name]["inv_freq_float64"], rtol=1e-12)
