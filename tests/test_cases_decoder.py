"""Bugs that others reported in caches, sampling, checkpoints and tied weights, tried here."""

import numpy as np
import pytest
from data import cases

import npgrad as ng
from npgrad import decoder
from npgrad.decoder.checkpoint import read_header, read_tensor
from npgrad.decoder.model import head

FAULTS = ("kv-cache", "tied-weights", "sampling", "checkpoint")
CASES = {run.__name__: run() for run in cases.REGISTRY if run.fault in FAULTS}
TINY = {"vocab_size": 3, "hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1}


def close(case, found, expected):
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=case["rtol"], atol=case["atol"])


def config_with(**changes):
    return decoder.Config(**TINY, **changes)


def test_all_of_them_are_tried():
    tried = {name.removeprefix("test_") for name in globals()}
    assert set(CASES) <= tried
    assert len(CASES) == 10


def test_cache_prefill_without_mask():
    case = CASES["cache_prefill_without_mask"]
    q, k, v = (case["inputs"][name][None, None] for name in "qkv")
    cache = decoder.Cache(config_with(), capacity=3, dtype=np.float64)
    close(case, ng.attention(q, *cache.extend(0, k, v))[0, 0], case["expected"]["out"])


def test_tied_embedding_gradient():
    case = CASES["tied_embedding_gradient"]
    ids = case["params"]["tokens"]
    params = {"embedding": case["inputs"]["E"]}
    out, pullback = ng.vjp(lambda p: head(p, ng.embedding(p["embedding"], ids)), params)
    close(case, out, case["expected"]["out"])
    close(case, pullback(case["cotangent"]["out"])[0]["embedding"], case["expected_grads"]["E"])


def test_sampling_temperature_zero():
    case = CASES["sampling_temperature_zero"]
    for step, token in zip(case["steps"], (1, 0), strict=True):
        p = decoder.probabilities(step["inputs"]["logits"], **step["params"])
        np.testing.assert_array_equal(p, np.arange(3) == token)


def check_top_p(case):
    for step in case.get("steps", [case]):
        p = decoder.probabilities(step["inputs"]["logits"], **step["params"])
        np.testing.assert_array_equal(p > 0, step["expected"]["kept"])
        close(case, p, step["expected"]["probs"])


def test_sampling_top_p_one():
    check_top_p(CASES["sampling_top_p_one"])


def test_sampling_top_p_boundary():
    check_top_p(CASES["sampling_top_p_boundary"])


def test_sampling_top_k_too_large():
    large, zero, negative = CASES["sampling_top_k_too_large"]["steps"]
    p = decoder.probabilities(large["inputs"]["logits"], **large["params"])
    np.testing.assert_array_equal(p > 0, large["expected"]["kept"])
    for step in (zero, negative):
        with pytest.raises(ValueError, match="top_k must be at least 1"):
            decoder.probabilities(step["inputs"]["logits"], **step["params"])


def read(content, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(content.tobytes())
    return {name: read_tensor(entry) for name, entry in read_header(tmp_path / "x.safetensors").items()}


def test_checkpoint_bf16(tmp_path):
    case = CASES["checkpoint_bf16"]
    w = read(case["inputs"]["file"], tmp_path)["w"]
    assert w.dtype == np.float32
    close(case, w, case["expected"]["w"])
    assert np.signbit(w[1, 1])


def test_checkpoint_offsets_checked(tmp_path):
    steps = CASES["checkpoint_offsets_checked"]["steps"]
    assert len(steps) == 5
    for step in steps:
        with pytest.raises(ValueError, match=r"blk\.w|a header of 1099511627776 bytes"):
            read(step["inputs"]["file"], tmp_path)


def test_checkpoint_tied_head():
    case = CASES["checkpoint_tied_head"]
    config, table = config_with(tie_word_embeddings=True), case["inputs"]["embedding"]
    tensors = {**decoder.to_llama(config, decoder.init(config, 0, float)), "model.embed_tokens.weight": table}
    for more in ({}, {"lm_head.weight": table.copy()}):
        params = decoder.from_llama(config, {**tensors, **more})
        assert "head" not in params
        close(case, head(params, case["inputs"]["hidden"]), case["expected"]["logits"])
    with pytest.raises(ValueError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        decoder.from_llama(config, {**tensors, "lm_head.weight": table + 1})


def test_checkpoint_missing_head_untied():
    config = config_with()
    tensors = decoder.to_llama(config, decoder.init(config, 0))
    del tensors["lm_head.weight"]
    with pytest.raises(ValueError, match=r"missing lm_head\.weight"):
        decoder.from_llama(config, tensors)
