"""feed_forward: equal to its parts, shapes, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng
from npgrad.ops import feed_forward


def test_reference_values():
    case, names = reference("ops")["swiglu"], ("x", "gate", "up", "down")
    weights = [case["in"][n].T for n in names[1:]]
    out, pullback = ng.vjp(feed_forward, case["in"]["x"], *weights)
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-13)
    for n, found in zip(names, pullback(case["cot"]["y"])):
        np.testing.assert_allclose(found if n == "x" else found.T, case["grad"][n], rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 3), st.integers(0, 4), st.integers(0, 3))
def test_fused_equals_the_parts(lead, width, hidden, outputs):
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s) for s in ((*lead, width), (width, hidden), (width, hidden), (hidden, outputs))]

    def parts(x, gate, up, down):
        return (ng.silu(x @ gate) * (x @ up)) @ down

    (fast, pullback), (plain, plain_pullback) = ng.vjp(feed_forward, *args), ng.vjp(parts, *args)
    np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)
    g = rng.normal(size=fast.shape)
    for found, expected in zip(pullback(g), plain_pullback(g), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_is_kept(dtype):
    args = [np.ones(s, dtype) for s in ((2, 3), (3, 4), (3, 4), (4, 2))]
    value, gradients = ng.value_and_grad(lambda *a: np.sum(feed_forward(*a)), (0, 1, 2, 3))(*args)
    assert {np.asarray(value).dtype, *(g.dtype for g in gradients)} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    "shapes",
    [
        ((), (1, 1), (1, 1), (1, 1)),
        ((2, 3), (2, 4), (2, 4), (4, 2)),
        ((2, 3), (3, 4), (3, 5), (4, 2)),
        ((2, 3), (3, 4), (3, 4), (5, 2)),
        ((2, 3), (3, 4), (3, 4), (4,)),
    ],
)
def test_errors(shapes):
    for function in (feed_forward, feed_forward.reference):
        with pytest.raises(ValueError, match=r"gate and up \(width, hidden\).*shapes given are"):
            function(*(np.ones(s) for s in shapes))
