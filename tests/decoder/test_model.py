"""The decoder's own laws: every coordinate of its gradient, the cache, padding, tied embeddings, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import differences

import npgrad as ng
from npgrad import decoder

SMALL = {
    "vocab_size": 11, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": 32,
}  # fmt: skip
WIDE = {
    **SMALL, "hidden_size": 16, "intermediate_size": 90, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
CONFIG = decoder.Config(**SMALL)
TOKENS = np.random.default_rng(0).integers(0, 11, (2, 5))


def model(seed=0, dtype=np.float64, **changes):
    """A config and parameters of which none is special: norms and biases as random as the rest."""
    config, rng = decoder.Config(**{**SMALL, **changes}), np.random.default_rng(seed)
    params = decoder.init(config, seed, np.float64)
    return config, ng.tree.map(lambda p: (p + 0.1 * rng.normal(size=p.shape)).astype(dtype), params)


@pytest.mark.parametrize(
    ("changes", "coordinates"),
    [
        ({"hidden_size": 8, "intermediate_size": 6, "num_attention_heads": 2}, 888),
        ({**WIDE, "tie_word_embeddings": True, "attention_bias": True, "num_hidden_layers": 1}, 5_360),
    ],
    ids=["two blocks", "one wide and tied"],
)
def test_every_coordinate_of_the_gradient(changes, coordinates):
    config, params = model(**changes)
    tokens, targets = np.array([[3, 1, 3, 7]]), np.array([[1, 3, -100, 0]])
    report = ng.check_grads(lambda params: decoder.loss(config, params, tokens, targets), params)
    assert report.coordinates == coordinates
    assert report.worst.error < 1e-9


def test_the_gradient_with_padding_and_gaps_against_other_differences():
    config, params = model(num_hidden_layers=1)
    mask = np.array([[False, False, True, True, True], [True, True, True, True, False]])
    positions = np.array([[0, 0, 0, 1, 2], [3, 4, 9, 10, 0]])
    cotangent = np.random.default_rng(1).normal(size=(2, 5, 11)) * mask[..., None]

    def logits(wk, norm):
        blocks = [{**params["blocks"][0], "wk": wk, "attention_norm": norm}]
        return decoder.forward(config, {**params, "blocks": blocks}, TOKENS, positions=positions, mask=mask)

    block = params["blocks"][0]
    args = block["wk"], block["attention_norm"]
    found = ng.vjp(logits, *args)[1](cotangent)
    for g, expected in zip(found, differences(logits, args, cotangent), strict=True):
        np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-11)


def test_tied_embeddings_are_one_parameter_with_the_gradient_of_both_uses():
    config, tied = model(tie_word_embeddings=True)
    assert "head" not in tied
    free = {**tied, "head": tied["embedding"].T.copy()}
    g = ng.grad(decoder.loss, 1)(config, tied, TOKENS, TOKENS)
    parts = ng.grad(decoder.loss, 1)(CONFIG, free, TOKENS, TOKENS)
    np.testing.assert_allclose(g["embedding"], parts["embedding"] + parts["head"].T, rtol=1e-12, atol=1e-14)
    step = ng.tree.map(lambda p, d: p - 0.1 * d, tied, g)
    assert sum(p.size for p in ng.tree.leaves(step)) == sum(p.size for p in ng.tree.leaves(free)) - 11 * 12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_initial_parameters(dtype):
    config = decoder.Config(**{**SMALL, "hidden_size": 120, "attention_bias": True})
    params, again, other = (decoder.init(config, seed, dtype) for seed in (3, 3, 4))
    for (path, a), b in zip(ng.tree.items(params), ng.tree.leaves(again), strict=True):
        assert a.dtype == dtype, path
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(params["embedding"], other["embedding"])
    block = params["blocks"][0]
    assert (block["attention_norm"] == 1).all()
    assert not block["bq"].any()
    assert not np.array_equal(block["gate"], block["up"])
    np.testing.assert_allclose(block["gate"].std(), 120**-0.5, rtol=0.1)
    logits = decoder.forward(config, params, TOKENS)
    assert logits.dtype == dtype
    assert logits.std() < 1  # so that the first loss is about log(vocabulary)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([{}, {"model_type": "mistral", "sliding_window": 3}]),
)
def test_a_cache_in_any_segmentation_equals_one_pass(lengths, dtype, changes):
    config, params = model(dtype=dtype, **changes)
    tokens = np.random.default_rng(sum(lengths)).integers(0, 11, (2, sum(lengths)))
    whole = decoder.forward(config, params, tokens)
    cache = decoder.Cache(config, 2, sum(lengths), dtype)
    parts = [
        decoder.forward(config, params, part, cache=cache) for part in np.split(tokens, np.cumsum(lengths)[:-1], 1)
    ]
    assert cache.length == cache.capacity == sum(lengths)
    assert {part.dtype for part in parts} == {np.dtype(dtype)}
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=0, atol={8: 1e-12, 4: 1e-5}[whole.itemsize])


def test_a_sliding_window_is_a_band_of_visible_tokens(monkeypatch):
    config, params = model(model_type="mistral", sliding_window=2)
    found = decoder.forward(config, params, TOKENS)
    attention, columns = decoder.model.attention, np.arange(5)
    distance = columns[:, None] - columns
    band = (distance >= 0) & (distance < 2)
    monkeypatch.setattr(
        decoder.model, "attention", lambda q, k, v, mask, window: attention(q, k, v, causal=False, mask=band)
    )
    np.testing.assert_allclose(found, decoder.forward(config, params, TOKENS), atol=1e-12)
    monkeypatch.undo()
    whole = decoder.forward(CONFIG, params, TOKENS)
    np.testing.assert_allclose(found[:, :2], whole[:, :2], atol=1e-12)
    assert np.abs(found[:, 2:] - whole[:, 2:]).max(axis=(0, 2)).min() > 1e-3


def test_generation_within_a_sliding_window_equals_recomputing_everything():
    config, params = model(model_type="mistral", sliding_window=3)
    prompts = [[4], [1, 2, 3, 4, 5]]
    steps = np.array(list(decoder.generate(config, params, prompts, max_new_tokens=8))).T.tolist()
    for prompt, new in zip(prompts, steps, strict=True):
        tokens = list(prompt)
        for token in new:
            assert token == int(np.argmax(decoder.forward(config, params, [tokens])[0, -1]))
            tokens.append(token)


def test_a_step_reads_the_cache_without_copying_it():
    cache = decoder.Cache(CONFIG, capacity=8, dtype=np.float64)
    assert decoder.Cache(CONFIG).capacity == 32
    new = np.ones((1, 1, 3, 4))
    for view, store in zip(cache.extend(1, new, 2 * new), (cache.keys, cache.values), strict=True):
        assert np.shares_memory(view, store)
        assert view.shape == new.shape
    assert (cache.keys[1, :, :, :3] == 1).all()
    assert (cache.values[1, :, :, :3] == 2).all()
    assert not cache.keys[0].any()
    assert not cache.keys[1, :, :, 3:].any()


def test_an_overflow_is_refused_before_anything_is_written():
    config, params = model()
    cache = decoder.Cache(config, 2, 6, np.float64)
    decoder.forward(config, params, TOKENS, cache=cache)
    keys = cache.keys.copy()
    with pytest.raises(ValueError, match="2 tokens after 5 exceed the cache's capacity of 6"):
        decoder.forward(config, params, TOKENS[:, :2], cache=cache)
    assert cache.length == 5
    np.testing.assert_array_equal(cache.keys, keys)
    last = decoder.forward(config, params, TOKENS[:, :1], cache=cache)
    cache.length = 5  # forgotten and computed once more
    np.testing.assert_array_equal(decoder.forward(config, params, TOKENS[:, :1], cache=cache), last)


def test_a_call_that_fails_half_way_leaves_the_cache_usable(monkeypatch):
    config, params = model()
    cache, whole = decoder.Cache(config, 2, 6, np.float64), decoder.forward(config, params, TOKENS)
    attention, calls = decoder.model.attention, []

    def failing(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise MemoryError
        return attention(*args, **options)

    monkeypatch.setattr(decoder.model, "attention", failing)
    with pytest.raises(MemoryError):
        decoder.forward(config, params, TOKENS, cache=cache)
    assert cache.keys[0].any()
    assert cache.length == 0
    np.testing.assert_allclose(decoder.forward(config, params, TOKENS, cache=cache), whole, atol=1e-12)


def test_longrope_takes_the_divisors_for_the_length_of_the_sequence():
    scaling = {"rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [1.0, 4.0],
               "original_max_position_embeddings": 4}  # fmt: skip
    config, params = model(rope_scaling=scaling)
    assert config.rotary(4).inverse_frequencies[1] == 4 * config.rotary(5).inverse_frequencies[1]
    short = decoder.forward(config, params, TOKENS[:, :4])
    assert np.abs(decoder.forward(config, params, TOKENS)[:, :4] - short).max() > 1e-6
    cache = decoder.Cache(config, 2, 5, np.float64)
    parts = [decoder.forward(config, params, part, cache=cache) for part in (TOKENS[:, :3], TOKENS[:, 3:])]
    np.testing.assert_allclose(np.concatenate(parts, 1), decoder.forward(config, params, TOKENS), atol=1e-12)


def test_no_tokens():
    config, params = model()
    assert decoder.forward(config, params, np.zeros((2, 0), int)).shape == (2, 0, 11)


def test_a_cache_is_for_plain_arrays():
    config, params = model()
    with pytest.raises(TypeError, match="compute gradients without one"):
        ng.grad(lambda p: np.sum(decoder.forward(config, p, TOKENS, cache=decoder.Cache(config, 2))))(params)


@pytest.mark.parametrize(
    ("tokens", "options", "error", "words"),
    [
        (TOKENS[0], {}, ValueError, r"tokens must have shape \(batch, tokens\), not \(5,\)"),
        (TOKENS * 1.0, {}, TypeError, "must be integers"),
        (TOKENS + 10, {}, IndexError, r"0\.\.10"),
        (TOKENS - 5, {}, IndexError, r"0\.\.10"),
        (np.zeros((1, 33), int), {}, ValueError, "table of 32"),
        (TOKENS, {"mask": np.ones((2, 4), bool)}, ValueError, r"mask must have .* \(2, 5\), not \(2, 4\)"),
        (TOKENS, {"mask": np.ones((2, 5), int)}, TypeError, "mask must be boolean"),
        (TOKENS, {"cache": decoder.Cache(CONFIG, 3)}, ValueError, "2 sequences don't fit a cache for 3"),
    ],
)
def test_what_cannot_be_computed_is_refused(tokens, options, error, words):
    with pytest.raises(error, match=words):
        decoder.forward(*model(), tokens, **options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p["blocks"].pop(), "trees differ at params"),
        (lambda p: p["blocks"].append(p["blocks"][0]), "trees differ at params"),
        (lambda p: p["blocks"][1].pop("wo"), "trees differ at params"),
        (lambda p: p["blocks"][1].update(bq=np.zeros(12)), "trees differ at params"),
        (lambda p: p["blocks"][0].update(wq=np.ones((12, 8))), r"\['blocks'\]\[0\]\['wq'\] has shape \(12, 8\)"),
        (lambda p: p.pop("head"), "trees differ at params"),
        (lambda p: p.update(embedding=np.ones((12, 12))), r"\['embedding'\] has shape \(12, 12\), but .* \(11, 12\)"),
        (lambda p: p.update(head=np.ones((12, 12))), r"params\['head'\] has shape \(12, 12\)"),
        (lambda p: p.pop("blocks"), "trees differ at params"),
    ],
)  # fmt: skip
def test_parameters_of_another_config_are_refused(change, words):
    config, params = model()
    change(params)
    for call in (
        lambda: decoder.forward(config, params, TOKENS),
        lambda: decoder.hidden_states(config, params, TOKENS),
        lambda: decoder.generate(config, params, [1], max_new_tokens=1),
        lambda: ng.grad(decoder.loss, 1)(config, params, TOKENS, TOKENS),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_cache_has_the_dtype_of_the_parameters():
    for dtype, other in ((np.float64, np.float32), (np.float32, np.float64)):
        config, params = model(dtype=dtype)
        cache = decoder.Cache(config, 2, dtype=other)
        with pytest.raises(ValueError, match=f"keys are {np.dtype(dtype)} .* but the cache is {np.dtype(other)}"):
            decoder.forward(config, params, TOKENS, cache=cache)
        assert cache.length == 0
        assert not cache.keys.any()


@pytest.mark.parametrize("dtype", [int, bool, complex, np.uint8])
def test_dtypes_that_a_decoder_cannot_compute_with(dtype):
    for make in (lambda: decoder.Cache(CONFIG, 1, 4, dtype), lambda: decoder.init(CONFIG, 0, dtype)):
        with pytest.raises(TypeError, match="floating-point numbers, such as float32, not"):
            make()


def test_prompts_padded_on_the_left_need_no_positions():
    config, params = model()
    mask = np.array([[False, False, True, True, True], [True, True, True, True, True]])
    positions = np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    expected = decoder.forward(config, params, TOKENS, mask=mask, positions=positions)
    np.testing.assert_array_equal(decoder.forward(config, params, TOKENS, mask=mask), expected)
    alone = decoder.forward(config, params, TOKENS[:1, 2:])
    np.testing.assert_allclose(expected[:1, 2:], alone, atol=1e-12)
    cache = decoder.Cache(config, 2, 5, np.float64)
    parts = [
        decoder.forward(config, params, TOKENS[:, start:end], cache=cache, mask=mask[:, :end])
        for start, end in ((0, 1), (1, 4), (4, 5))
    ]
    np.testing.assert_allclose(np.concatenate(parts, 1)[mask], expected[mask], atol=1e-12)


@pytest.mark.parametrize("capacity", [0, -1, 33])
def test_capacities_that_make_no_cache(capacity):
    with pytest.raises(ValueError, match=r"capacity must be in 1\.\.32"):
        decoder.Cache(CONFIG, 1, capacity)


def test_recomputing_changes_no_gradient():
    config, params = model(num_key_value_heads=3, tie_word_embeddings=True)
    found = [
        ng.value_and_grad(decoder.loss, 1)(config, params, TOKENS[:, :-1], TOKENS[:, 1:], recompute=again)
        for again in (False, True)
    ]
    for (path, plain), again in zip(ng.tree.items(found[0]), ng.tree.leaves(found[1]), strict=True):
        np.testing.assert_array_equal(plain, again, err_msg=path)


def test_recomputing_keeps_less():
    config, params = model(num_hidden_layers=1)
    tapes = []
    for again in (False, True):
        tape = ng.Tape()
        decoder.loss(config, ng.tree.map(tape.variable, params), TOKENS, TOKENS, recompute=again)
        tapes.append([str(record.primitive) for record in tape.records if record.primitive])
    assert "self_attention" in tapes[0]
    assert "self_attention" not in tapes[1]
