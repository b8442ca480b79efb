"""attention: reference values, grouped heads, masks, offsets, windows, tiles, and queries with nothing to see."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng

CASES = reference("attention")
OTHER_CONVENTION = {
    "softcap": "Gemma's cap on the scores, a tanh before the mask: written with softmax below",
    "bias": "a float added to the scores (ALiBi): written with softmax below",
    "bias_no_mask": "the same",
    "llama_layer": "a whole layer with its projections and rotation: the decoder's tests have it",
}
# Roles add_min and replace_min of the cases with empty rows are a convention of others too: there a query that sees
# nothing gets the mean of all values. Ours gives zeros, as torch does, which is the cases' own `out` and `grad`.
TILES = sys.modules["npgrad.ops.attention"]


def options_of(case):
    """The mask by our own names where the case is one of them, else the case's boolean mask."""
    params, mask = case["params"], case["in"].get("mask")
    options = {"scale": params["scale"], "causal": False}
    if mask is None:
        return options
    if "window" in params:
        return options | {"causal": True, "window": params["window"]}
    if case["name"] == "causal_upper_left":
        return options | {"causal": True, "offset": 0}
    if case["name"].startswith(("causal_pad", "gqa_pad")):  # key padding, and the causal mask as our option
        return options | {"causal": True, "mask": mask[:, :, -1:, :] if "right" not in case["name"] else mask}
    if case["name"].startswith("pad"):
        return options | {"mask": mask}
    return options | {"causal": True}


def vjp(q, k, v, g=None, function=ng.attention, **options):
    out, pullback = ng.vjp(lambda q, k, v: function(q, k, v, **options), q, k, v)
    return out, pullback(np.random.default_rng(5).normal(size=out.shape).astype(out.dtype) if g is None else g)


def close(found, expected, rtol=1e-12, atol=1e-13):
    np.testing.assert_allclose(found[0], expected[0], rtol=rtol, atol=atol)
    for a, b in zip(found[1], expected[1]):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=10 * atol)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


@pytest.mark.parametrize("masked", ["by its own options", "by the whole mask"])
@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHER_CONVENTION.keys()))
def test_reference_values(name, masked):
    case = CASES[name]
    options = options_of(case)
    if masked == "by the whole mask" and "mask" in case["in"]:
        options = {"scale": options["scale"], "causal": False, "mask": case["in"]["mask"]}
    found = vjp(*(case["in"][n] for n in "qkv"), case["cot"]["y"], **options)
    tolerance = (1e-12, 1e-14) if case["params"]["dtype"] == "float64" else (1e-5, 1e-5)
    if name == "large_scores":
        tolerance = (1e-11, 1e-11)  # scores in the thousands: that many roundings apart
    if name == "float32_large_scores":
        tolerance = (1e-3, 1e-3)
    close(found, (case["out"]["y"], [case["grad"][n] for n in "qkv"]), *tolerance)
    if "empty.rows" in case:
        empty = case["empty.rows"]["mask"].astype(bool)
        assert empty.any()
        np.testing.assert_array_equal(found[0][empty], 0)
        np.testing.assert_array_equal(found[1][0][empty], 0)


@pytest.mark.parametrize("name", ["softcap", "bias", "bias_no_mask"])
def test_reference_values_of_other_kinds_through_softmax(name):
    case = CASES[name]
    mask, bias, cap = case["in"].get("mask", True), case["in"].get("bias", np.zeros(())), case["params"].get("softcap")

    def attend(q, k, v, bias):
        scores = q @ k.mT * case["params"]["scale"]
        scores = cap * np.tanh(scores / cap) if cap else scores + bias
        return ng.softmax(np.where(mask, scores, -np.inf)) @ v

    out, pullback = ng.vjp(attend, *(case["in"][n] for n in "qkv"), bias)
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-14)
    for n, found in zip(("q", "k", "v", "bias"), pullback(case["cot"]["y"])):
        if n in case["grad"]:
            np.testing.assert_allclose(found, case["grad"][n], rtol=1e-12, atol=1e-13)


@pytest.fixture(params=["kept", "computed again"])
def small_tiles(request, monkeypatch):
    """Tiles so small that a few tokens need several, with the weights kept or computed again by the pullback."""
    monkeypatch.setattr(TILES, "TILE", 20)
    monkeypatch.setattr(TILES, "ROWS", 2)
    monkeypatch.setattr(TILES, "KEPT", 2**22 if request.param == "kept" else 0)


@pytest.mark.parametrize(("heads", "shared"), [(4, 2), (3, 1), (2, 2)])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (7, 3), (1, 6)])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_fused_equals_reference_in_small_tiles(small_tiles, lead, queries, keys, heads, shared):
    q, k, v = random(*lead, heads, queries, 2), random(*lead, shared, keys, 2, seed=1), random(*lead, shared, keys, 3)
    shapes = [
        (keys,),
        (queries, keys),
        (heads, queries, keys),
        (1, 1, keys),
        (*lead, 1, 1, keys),
        (5, *(1 for _ in lead), 1, 1, 1),
    ]
    masks = [None, *(random(*shape, seed=2) < 0.5 for shape in shapes)]
    for i, options in enumerate(({}, {"causal": False}, {"window": 2}, {"offset": 1}, {"offset": -2, "window": 3})):
        for mask in (None, masks[1 + i % len(shapes)], masks[-1 - i]):
            options = {"mask": mask, **options}
            close(vjp(q, k, v, **options), vjp(q, k, v, function=ng.attention.reference, **options))


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3),
    st.none() | st.integers(-3, 9), st.none() | st.integers(1, 4), st.sampled_from([0.0, 1.0, 40.0]),
    st.sampled_from([4, 2**17]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_fused_equals_reference(group, shared, queries, keys, width, offset, window, spread, tile, seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(2, shared * group, queries, width)) * spread
    k, v = rng.normal(size=(2, shared, keys, width)) * spread, rng.normal(size=(2, shared, keys, 2))
    options = {"offset": offset, "window": window, "mask": rng.random((2, 1, 1, keys)) < 0.8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TILES, "TILE", tile)
        patch.setattr(TILES, "ROWS", 3)
        found = vjp(q, k, v, **options)
    # scores of thousands: rounding them differently shows, as it does between any two orders of summation
    close(found, vjp(q, k, v, function=ng.attention.reference, **options), atol=1e-13 if spread < 2 else 1e-10)


def test_long_sequences_against_the_plain_form():
    q, k, v = random(2, 200, 4), random(2, 300, 4), random(2, 300, 4, seed=1)
    for options in ({}, {"window": 70}, {"causal": False}, {"offset": 20}):
        close(vjp(q, k, v, **options), vjp(q, k, v, function=ng.attention.reference, **options))


def test_memory_is_linear_in_the_number_of_tokens():
    q = random(1, 3000, 2).astype(np.float32)
    tracemalloc.start()
    vjp(q, q, q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000 * 3000 * 4 / 8  # an eighth of the scores alone


def test_one_token_is_its_own_value():
    q, v = random(2, 1, 4), random(2, 1, 4, seed=1)
    np.testing.assert_allclose(ng.attention(q, q, v), v, rtol=1e-15)


def test_permuted_keys_without_a_causal_mask():
    q, k, v = random(2, 3, 4), random(2, 5, 4), random(2, 5, 4, seed=1)
    order = np.random.default_rng(0).permutation(5)
    mask = random(3, 5) < 0.5
    out, (dq, dk, dv) = vjp(q, k, v, causal=False, mask=mask)
    moved = vjp(q, k[:, order], v[:, order], causal=False, mask=mask[:, order])
    close(moved, (out, (dq, dk[:, order], dv[:, order])))


def test_later_tokens_have_no_influence_and_no_gradient():
    q, k, v = random(2, 5, 4), random(2, 5, 4), random(2, 5, 4, seed=1)
    out, pullback = ng.vjp(ng.attention, q, k, v)
    for t in range(5):
        np.testing.assert_allclose(
            ng.attention(q[:, : t + 1], k[:, : t + 1], v[:, : t + 1]), out[:, : t + 1], rtol=1e-13
        )
        g = np.zeros_like(out)
        g[:, t] = 1
        for d in pullback(g)[1:]:
            np.testing.assert_array_equal(d[:, t + 1 :], 0)


def test_tokens_one_by_one_against_the_keys_so_far():
    q, k, v = random(2, 4, 5, 4), random(2, 2, 5, 4), random(2, 2, 5, 4, seed=1)
    whole = ng.attention(q, k, v)
    for t in range(5):
        step = ng.attention(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1])
        np.testing.assert_allclose(step, whole[:, :, t : t + 1], rtol=1e-13)
        ahead = ng.attention(q[:, :, t : t + 1], k, v, offset=t)  # a cache that already has room for the rest
        np.testing.assert_allclose(ahead, whole[:, :, t : t + 1], rtol=1e-13)


def test_grouped_heads_equal_repeated_ones():
    q, k, v = random(6, 4, 3), random(2, 4, 3), random(2, 4, 3, seed=1)
    out, (dq, dk, dv) = vjp(q, k, v)
    plain, (pq, pk, pv) = vjp(q, np.repeat(k, 3, 0), np.repeat(v, 3, 0))
    close((out, (dq, dk, dv)), (plain, (pq, pk.reshape(2, 3, 4, 3).sum(1), pv.reshape(2, 3, 4, 3).sum(1))))


def test_nothing_visible_is_zero_and_moves_nothing():
    q, k, v = random(2, 3, 4), random(2, 3, 4), random(2, 3, 4, seed=1)
    for options in ({"mask": np.zeros(3, bool)}, {"offset": -3}):
        out, gradients = vjp(q, k, v, **options)
        np.testing.assert_array_equal(out, 0)
        for d in gradients:
            np.testing.assert_array_equal(d, 0)
    assert ng.attention(q, k[:, :0], v[:, :0]).tolist() == np.zeros((2, 3, 4)).tolist()
    assert ng.attention(q[:, :0], k, v).shape == (2, 0, 4)


def test_hidden_garbage_does_not_matter():
    q, k, v = random(2, 3, 4), random(2, 3, 4), random(2, 3, 4, seed=1)
    expected = ng.attention(q, k, v, mask=np.array([True, True, False]))
    k[:, 2] = 1e200
    np.testing.assert_array_equal(ng.attention(q, k, v, mask=np.array([True, True, False])), expected)


def test_of_arrays_in_a_file_comes_an_array_in_memory(tmp_path):
    x = np.memmap(tmp_path / "x", float, "w+", shape=(1, 3, 2))
    assert type(ng.attention(x, x, x)) is np.ndarray


def test_results_keep_the_memory_layout_of_the_queries():
    """Heads that are views of (batch, tokens, heads · width) come back as such, so that joining them again is free."""
    x = random(2, 3, 4 * 2)
    q = x.reshape(2, 3, 4, 2).transpose(0, 2, 1, 3)
    out = ng.attention(q, q, q)
    assert np.shares_memory(out.transpose(0, 2, 1, 3).reshape(2, 3, 8), out)


def test_float32_with_a_numpy_scale_stays_float32():
    q = random(1, 3, 4).astype(np.float32)
    assert ng.attention(q, q, q, scale=np.float64(0.5)).dtype == np.float32
    assert ng.attention(q, q, q.astype(float)).dtype == np.float64


ERRORS = [
    (ValueError, r"\(\.\.\., heads, tokens, width\), not \(3, 4\)", (3, 4), (3, 4), (3, 4), {}),
    (ValueError, "5 query heads can't share 2 key/value heads", (5, 3, 4), (2, 3, 4), (2, 3, 4), {}),
    (ValueError, "q and k must have one width", (1, 3, 4), (1, 3, 2), (1, 3, 4), {}),
    (ValueError, "k and v the same heads and tokens", (1, 3, 4), (1, 3, 4), (1, 2, 4), {}),
    (ValueError, "window belong to the causal mask", (1, 3, 4), (1, 3, 4), (1, 3, 4), {"causal": False, "window": 2}),
    (ValueError, "a window of 0 keys", (1, 3, 4), (1, 3, 4), (1, 3, 4), {"window": 0}),
    (TypeError, "integer", (1, 3, 4), (1, 3, 4), (1, 3, 4), {"offset": 0.5}),
    (TypeError, "True where a key is visible, not float64", (1, 3, 4), (1, 3, 4), (1, 3, 4), {"mask": np.ones(3)}),
    (ValueError, r"\(2,\).* end here in \(1, 3, 3\)", (1, 3, 4), (1, 3, 4), (1, 3, 4), {"mask": np.ones(2, bool)}),
]


@pytest.mark.parametrize(("error", "words", "q", "k", "v", "options"), ERRORS)
def test_errors(error, words, q, k, v, options):
    for function in (ng.attention, ng.attention.reference):
        with pytest.raises(error, match=words):
            function(np.ones(q), np.ones(k), np.ones(v), **options)


def test_batches_that_do_not_broadcast_say_so():
    q, k = np.ones((2, 1, 4, 3)), np.ones((3, 1, 4, 3))
    for f in (ng.attention, ng.attention.reference):
        with pytest.raises(ValueError, match=r"before the last three must broadcast: \(2, 1, 4, 3\), \(3, 1, 4, 3\)"):
            f(q, k, k)


def test_a_mask_of_whole_queries_in_a_window():
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 2, 150, 4))
    keep = np.arange(150)[:, None] % 3 != 0
    narrow, full = (
        ng.vjp(lambda q, k, v, m=m: ng.attention(q, k, v, causal=True, window=5, mask=m), q, k, v)
        for m in (keep, np.broadcast_to(keep, (150, 150)))
    )
    np.testing.assert_allclose(narrow[0], full[0], rtol=1e-13, atol=1e-14)
    for found, expected in zip(narrow[1](q), full[1](q), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kept", [2**22, 0])
def test_a_mask_changed_later_does_not_reach_the_gradient(monkeypatch, kept):
    monkeypatch.setattr(TILES, "KEPT", kept)
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, 2, 1, 3, 4))
    mask = np.array([[[[True, False, True]]], [[[True, True, True]]]])
    _, pullback = ng.vjp(lambda x: ng.attention(x, x, x, mask=mask), x)
    (before,) = pullback(g)
    mask[...] = ~mask
    np.testing.assert_array_equal(pullback(g)[0], before)
