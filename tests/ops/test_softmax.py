"""Softmax, log_softmax and logsumexp: reference values, infinities, axes, empties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from oracle import reference

import npgrad as ng

FUNCTIONS = {"softmax": ng.softmax, "log_softmax": ng.log_softmax, "logsumexp": ng.logsumexp}
CASES = {name: case for name, case in reference("ops").items() if case["op"] in FUNCTIONS}
INFINITE = {name for name in CASES if "all_neg_inf_row" in name or "pos_inf" in name}  # tried one by one below


def vjp(function, x, g, **options):
    out, pullback = ng.vjp(lambda x: function(x, **options), x)
    return out, pullback(g)[0]


@pytest.mark.parametrize("name", sorted(CASES.keys() - INFINITE))
def test_reference_values(name):
    case = CASES[name]
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in case["params"].items() if k != "dtype"}
    out, gradient = vjp(FUNCTIONS[case["op"]], case["in"]["x"], case["cot"]["y"], **options)
    tolerance = {"rtol": 1e-12, "atol": 1e-15} if case["params"]["dtype"] == "float64" else {"rtol": 1e-5, "atol": 1e-6}
    assert out.dtype == gradient.dtype == case["params"]["dtype"]
    np.testing.assert_allclose(out, case["out"]["y"], **tolerance)
    np.testing.assert_allclose(gradient, case["grad"]["x"], **tolerance)


def test_reference_values_of_a_masked_softmax():
    case = reference("ops")["softmax_masked"]
    mask = case["in"]["mask"].astype(bool)
    out, gradient = vjp(lambda x: ng.softmax(np.where(mask, x, -np.inf)), case["in"]["x"], case["cot"]["y"])
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradient, case["grad"]["x"], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_a_row_of_nothing_but_minus_infinity(op):
    """torch and JAX give NaN there; here nothing has no weight and no gradient. The other rows are as ever."""
    case = CASES[f"{op}_all_neg_inf_row"]
    out, gradient = vjp(FUNCTIONS[op], case["in"]["x"], case["cot"]["y"])
    np.testing.assert_allclose(out[0], case["out"]["y"][0], rtol=1e-12)
    np.testing.assert_allclose(gradient[0], case["grad"]["x"][0], rtol=1e-12)
    np.testing.assert_array_equal(out[1], 0 if op == "softmax" else -np.inf)
    np.testing.assert_array_equal(gradient[1], 0)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_a_row_with_plus_infinity(op):
    case = CASES[f"{op}_pos_inf"]
    out, gradient = vjp(FUNCTIONS[op], case["in"]["x"], case["cot"]["y"])
    np.testing.assert_array_equal(out, case["out"]["y"])  # NaN, NaN, inf
    assert np.isnan(gradient).any() == (op != "logsumexp")  # whose gradient has a limit


def test_infinities_and_numbers_share_a_call():
    x = np.array([[np.inf, 0.0, 1.0], [-np.inf] * 3, [-np.inf, 0.0, np.log(3.0)], [1e308, -1e308, 1e308]])
    np.testing.assert_allclose(
        ng.softmax(x), [[np.nan] * 3, [0, 0, 0], [0, 0.25, 0.75], [0.5, 0, 0.5]], rtol=1e-14, equal_nan=True
    )
    np.testing.assert_allclose(ng.logsumexp(x), [np.inf, -np.inf, np.log(4), 1e308], rtol=1e-14)
    np.testing.assert_allclose(
        ng.log_softmax(x),
        [[np.nan] * 3, [-np.inf] * 3, [-np.inf, -np.log(4), np.log(0.75)], [-np.log(2), -np.inf, -np.log(2)]],
        rtol=1e-14,
        equal_nan=True,
    )
    np.testing.assert_array_equal(ng.softmax(np.array([[np.nan, 0.0], [0.0, 0.0]]))[0], np.nan)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("level", [-80, -40, 40, 80, 1000])
def test_rows_far_from_zero_beside_a_row_near_it(dtype, level):
    """One large row must not cost another its digits: where exp alone leaves its range, each row gets its own shift."""
    x = np.array([[0.0, 1.0, 2.0], [level, level + 1.0, level + 2.0]]).astype(dtype)
    expected = np.exp(np.array([0, 1, 2], np.longdouble))
    expected /= expected.sum()
    tolerance = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(ng.softmax(x), [expected, expected], rtol=tolerance)
    np.testing.assert_allclose(np.exp(ng.log_softmax(x)), [expected, expected], rtol=max(50, abs(level)) * tolerance)
    assert ng.softmax(x).dtype == dtype


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize(("shape", "axis"), [((0,), -1), ((3, 0), -1), ((0, 3), -1), ((3, 0), 0), ((2, 0, 3), (1, 2))])
def test_empty(op, shape, axis):
    x = np.zeros(shape)
    expected = np.full(np.sum(x, axis=axis).shape, -np.inf) if op == "logsumexp" else x
    out, gradient = vjp(FUNCTIONS[op], x, np.ones(expected.shape), axis=axis)
    np.testing.assert_array_equal(out, expected)
    assert out.shape == expected.shape
    assert gradient.shape == shape


def test_scalars_lists_and_integers():
    assert ng.logsumexp(3.0, axis=None) == ng.logsumexp(3.0) == 3.0
    assert ng.softmax(3.0) == 1.0
    np.testing.assert_array_equal(ng.softmax([[1, 1], [2, 2]]), np.full((2, 2), 0.5))
    np.testing.assert_allclose(ng.logsumexp(np.array([0, 0])), np.log(2))
    with pytest.raises(TypeError, match="real numbers"):
        ng.softmax(np.array(["a"]))


@pytest.mark.parametrize("op", FUNCTIONS)
def test_an_axis_that_is_not_there(op):
    with pytest.raises(np.exceptions.AxisError, match="axis 2 is out of bounds for array of dimension 2"):
        FUNCTIONS[op](np.ones((2, 2)), axis=2)


ROWS = arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=5), elements=st.floats(-800, 800))


@settings(deadline=None, max_examples=60)
@given(x=ROWS, data=st.data())
def test_fused_equals_reference_along_any_axis(x, data):
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim), tuple(range(x.ndim))]))
    hidden = data.draw(arrays(bool, x.shape))
    x = np.where(hidden, -np.inf, x)
    g = np.random.default_rng(0).normal(size=x.shape)
    for function in (ng.softmax, ng.log_softmax):
        fast, plain = vjp(function, x, g, axis=axis), vjp(function.reference, x, g, axis=axis)
        np.testing.assert_allclose(fast[0], plain[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(fast[1], plain[1], rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(x=ROWS, shift=st.floats(-1e3, 1e3))
def test_rows_sum_to_one_and_shifts_change_nothing(x, shift):
    p = ng.softmax(x)
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-13)
    assert (p >= 0).all()
    np.testing.assert_allclose(ng.softmax(x + shift), p, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ng.logsumexp(x + shift), ng.logsumexp(x) + shift, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(x - ng.logsumexp(x, keepdims=True), ng.log_softmax(x), rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(x=ROWS)
def test_gradients_of_softmax_sum_to_zero_over_a_row(x):
    g = np.random.default_rng(0).normal(size=x.shape)
    for function in (ng.softmax, ng.log_softmax):
        np.testing.assert_allclose(vjp(function, x, g)[1].sum(-1), 0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "largest"), [(np.float32, 88.6), (np.float64, 709.7)])
def test_exponentials_in_range_whose_sum_is_not(dtype, largest):
    x = np.full((64, 64), largest, dtype)
    assert np.isfinite(np.exp(x)).all()
    np.testing.assert_allclose(ng.softmax(x), 1 / 64, rtol=1e-6)
    np.testing.assert_allclose(ng.logsumexp(x), largest + np.log(64), rtol=1e-6)
    np.testing.assert_allclose(ng.cross_entropy(x, np.zeros(64, int)), np.log(64), rtol=1e-4)
    rows = np.sqrt(x[None, :, :1])  # of scores that are all `largest`, and see all keys
    np.testing.assert_allclose(ng.attention(rows, rows, rows, scale=1.0, causal=False), rows, rtol=1e-6)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_empty_rows_twice(op):
    twice = lambda x: np.sum(ng.grad(lambda x: np.sum(FUNCTIONS[op](x) ** 2))(x))
    assert ng.grad(twice)(np.ones((2, 0))).shape == (2, 0)


def test_logsumexp_is_along_the_last_axis():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_allclose(ng.grad(lambda x: np.sum(ng.logsumexp(x)))(x), ng.softmax(x, -1), rtol=1e-12)
    np.testing.assert_allclose(ng.grad(ng.logsumexp)(np.zeros(2)), [0.5, 0.5])


def test_memory_of_float32_stays_float32():
    assert ng.softmax(memoryview(np.ones(2, np.float32))).dtype == np.float32


def test_the_gradient_of_logsumexp_where_it_is_infinite_goes_to_the_infinite():
    x = np.array([[np.inf, 0.0, 1.0], [np.inf, np.inf, 0.0], [np.log(1.0), np.log(3.0), -np.inf]])
    out, pullback = ng.vjp(ng.logsumexp, x)
    np.testing.assert_allclose(out, [np.inf, np.inf, np.log(4)])
    np.testing.assert_allclose(pullback(np.ones(3))[0], [[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.75, 0]])
    whole = ng.grad(lambda x: ng.logsumexp(x, axis=None))(x)
    np.testing.assert_allclose(whole, np.isposinf(x) / 3)
