"""Reductions and running totals: every declared example, ties, zeros, empty arrays, and what is refused."""

import functools

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgrad as ng

INF, NAN = np.inf, np.nan


def gradient(f, x, cotangent=None):
    tape = ng.Tape()
    v = tape.variable(x)
    y = f(v)
    return tape.gradient(y, [v], np.ones(y.shape, y.dtype) if cotangent is None else cotangent)[0]


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("reductions"))
def test_examples(example, check):
    check(example)


def product_of_others(x):
    return np.array([np.prod(np.delete(x, i)) for i in range(x.size)])


@pytest.mark.parametrize("x", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [2.0, -1.0, 4.0], [5.0], [0.0], []])
def test_prod_is_exact_with_any_number_of_zeros(x):
    x = np.array(x)
    np.testing.assert_array_equal(gradient(np.prod, x), product_of_others(x))


def test_prod_of_numbers_whose_product_underflows():
    x = np.array([1e-200, 1e-200, 1e300])
    np.testing.assert_allclose(gradient(np.prod, x), [1e100, 1e100, 0.0])


def test_second_derivative_of_prod_with_zeros():
    x = np.array([0.0, 0.0, 3.0, 2.0])
    second = np.stack([ng.grad(lambda x, i=i: ng.grad(np.prod)(x)[i])(x) for i in range(4)])
    want = [[0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(4)] for i in range(4)]
    np.testing.assert_array_equal(second, want)


@settings(deadline=None, max_examples=50)
@given(
    hnp.arrays(np.float64, st.integers(0, 7), elements=st.sampled_from([0.0, 1.0, -2.0, 0.5, 3.0])), st.integers(0, 99)
)
def test_cumprod_with_zeros_against_its_jacobian(x, seed):
    g = np.random.default_rng(seed).normal(size=x.shape)
    jacobian = [[np.prod(np.delete(x[: j + 1], i)) if i <= j else 0.0 for j in range(x.size)] for i in range(x.size)]
    want = np.array([np.dot(row, g) for row in jacobian]) if x.size else x
    np.testing.assert_allclose(gradient(np.cumprod, x, g), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", [np.max, np.min, np.amax, np.amin])
def test_ties_share_evenly(f):
    x = np.array([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.0, 0.0, 1.0]])
    for axis in (None, 0, 1, (0, 1)):
        out = f(x, axis=axis, keepdims=True)
        ties = x == out
        want = ties / np.sum(ties, axis=axis, keepdims=True)
        np.testing.assert_allclose(gradient(lambda v, axis=axis: f(v, axis=axis), x), want)


def test_a_tie_with_initial_counts_as_one():
    np.testing.assert_allclose(gradient(lambda v: np.max(v, initial=2.0), np.array([2.0, 2.0, 1.0])), [1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(gradient(lambda v: np.max(v, initial=3.0), np.array([2.0, 2.0, 1.0])), [0, 0, 0])
    np.testing.assert_allclose(gradient(lambda v: np.min(v, initial=0.0), np.array([2.0, 0.0, 1.0])), [0, 0.5, 0])


def test_extremes_of_nan_and_of_infinities():
    np.testing.assert_array_equal(gradient(np.max, np.array([1.0, NAN, 2.0])), [0, NAN, 0])
    np.testing.assert_array_equal(gradient(np.max, np.array([1.0, INF, INF])), [0, 0.5, 0.5])
    np.testing.assert_array_equal(gradient(lambda v: np.max(v, axis=1), np.full((2, 2), -INF)), np.full((2, 2), 0.5))


def test_an_infinite_cotangent_stays_at_the_largest():
    got = gradient(lambda v: np.max(v, axis=0), np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([INF, NAN]))
    np.testing.assert_array_equal(got, [[0, NAN], [INF, 0]])


def test_deviation_of_equal_numbers_has_slope_zero():
    for f in (np.std, np.var, lambda v: np.std(v, where=[True, True, False]), lambda v: np.std(v, mean=2.0), np.ptp):
        np.testing.assert_array_equal(gradient(f, np.full(3, 2.0)), np.zeros(3))
    x = np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]])
    got = gradient(lambda v: np.std(v, axis=1), x)
    np.testing.assert_array_equal(got[0], np.zeros(3))
    np.testing.assert_allclose(got[1], (x[1] - x[1].mean()) / (3 * x[1].std()))


def test_deviation_of_equal_numbers_whose_mean_is_rounded_has_slope_zero():
    x = np.full((2, 3), 0.1)
    assert np.std(x[0]) > 0  # a third of 0.1 + 0.1 + 0.1 is not 0.1
    np.testing.assert_array_equal(gradient(lambda v: np.std(v, axis=1), x), np.zeros((2, 3)))


def test_variance_about_a_given_mean_that_is_a_variable():
    x = np.array([1.0, 2.0, 4.5])
    np.testing.assert_allclose(gradient(lambda v: np.var(v, mean=np.mean(v)), x), 2 * (x - x.mean()) / 3)
    tape = ng.Tape()
    v, m = tape.variable(x), tape.variable(1.0)
    dv, dm = tape.gradient(np.var(v, mean=m), [v, m])
    np.testing.assert_allclose(dv, 2 * (x - 1) / 3)
    np.testing.assert_allclose(dm, -2 * np.mean(x - 1))


def test_large_offsets_do_not_spoil_the_variance():
    x = 1e8 + np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(gradient(np.var, x), np.array([-2, 0, 2]) / 3, atol=1e-12)


@pytest.mark.parametrize("reduce", [np.logaddexp.reduce, np.logaddexp2.reduce])
def test_reduced_logaddexp_at_infinities(reduce):
    np.testing.assert_array_equal(gradient(reduce, np.array([-INF, -INF])), [0, 0])
    np.testing.assert_array_equal(gradient(reduce, np.array([-INF, 1.0])), [0, 1])
    np.testing.assert_array_equal(gradient(reduce, np.array([1e300, 1e300])), [0.5, 0.5])
    np.testing.assert_array_equal(gradient(reduce, np.array([INF, 1.0, INF])), [0.5, 0, 0.5])
    rows = gradient(lambda v: reduce(v, axis=1), np.array([[-INF, -INF], [-INF, 2.0]]))
    np.testing.assert_array_equal(rows, [[0, 0], [0, 1]])


def test_other_ufunc_methods_at_edges():
    np.testing.assert_array_equal(gradient(np.hypot.reduce, np.zeros(3)), np.zeros(3))
    np.testing.assert_allclose(gradient(np.hypot.reduce, np.array([3.0, -4.0])), [0.6, -0.8])
    np.testing.assert_array_equal(gradient(np.fmax.reduce, np.array([NAN, 1.0, 1.0])), [0, 0.5, 0.5])
    running = lambda v: np.maximum.accumulate(v)
    np.testing.assert_array_equal(gradient(running, np.array([1.0, 3.0, 2.0, 3.0, 4.0])), [1, 3, 0, 0, 1])
    v = ng.Tape().variable([1.0, NAN, 2.0, NAN, 0.0])
    np.testing.assert_array_equal(np.maximum.accumulate(v).value, np.maximum.accumulate(v.value))
    assert type(np.logical_and.reduce(v)) is not ng.Variable


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("f", [np.sum, np.prod, np.cumsum, np.cumprod])
def test_empty_arrays(f, shape):
    x = np.zeros(shape)
    assert gradient(f, x).shape == shape
    for axis in range(len(shape)):
        assert np.array_equal(f(ng.Tape().variable(x), axis=axis).value, f(x, axis=axis))
        assert gradient(lambda v, axis=axis: f(v, axis=axis), x).shape == shape


@pytest.mark.parametrize("f", [np.sum, np.mean, np.prod, np.max, np.var, np.std, np.cumsum, np.cumprod, np.ptp])
def test_zero_dimensional_arrays(f):
    x = np.array(2.0)
    assert np.array_equal(f(ng.Tape().variable(x)).value, f(x))
    assert gradient(f, x).shape == ()


def test_dtype_of_floats_is_honoured_and_others_are_refused():
    x = np.arange(4, dtype=np.float32)
    for f in (np.sum, np.mean, np.prod, np.var, np.std, np.cumsum, np.cumprod, np.add.reduce):
        v = ng.Tape().variable(x)
        assert f(v, dtype=np.float64).dtype == np.float64
        assert gradient(lambda v, f=f: f(v, dtype=np.float64), x).dtype == np.float32
    for f in (np.sum, np.prod, np.cumsum):
        with pytest.raises(TypeError, match="int64"):
            f(ng.Tape().variable(x), dtype=np.int64)


REDUCTIONS = [np.sum, np.mean, np.prod, np.max, np.min, np.var, np.std, np.ptp, np.cumsum, np.cumprod]


@pytest.mark.parametrize("f", REDUCTIONS)
def test_out_is_refused(f):
    with pytest.raises(TypeError, match="out="):
        f(ng.Tape().variable([1.0, 2.0]), out=np.empty(()))


@pytest.mark.parametrize("f", REDUCTIONS)
def test_an_axis_that_does_not_exist_is_numpys_error(f):
    for axis in (2, -3):
        with pytest.raises(np.exceptions.AxisError):
            f(ng.Tape().variable(np.ones((2, 3))), axis=axis)


@pytest.mark.parametrize("name", [name for name in ("cumulative_sum", "cumulative_prod") if hasattr(np, name)])
def test_a_cumulative_sum_of_a_matrix_needs_an_axis(name):
    with pytest.raises(ValueError, match="axis"):
        getattr(np, name)(ng.Tape().variable(np.ones((2, 2))))


def test_a_variable_as_initial_is_refused():
    v = ng.Tape().variable([1.0, 2.0])
    with pytest.raises(TypeError, match="initial"):
        np.sum(v, initial=v[0])


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_any_axes(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3))
    f = data.draw(st.sampled_from([np.sum, np.mean, np.prod, np.max, np.min, np.var, np.std]))
    axis = data.draw(
        st.none() | hnp.valid_tuple_axes(len(shape), min_size=1) | st.integers(-len(shape), len(shape) - 1)
    )
    keepdims = data.draw(st.booleans())
    x = np.random.default_rng(shape).permutation(np.linspace(0.5, 2, int(np.prod(shape)))).reshape(shape)
    out = f(ng.Tape().variable(x), axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(out.value, f(x, axis=axis, keepdims=keepdims), rtol=1e-13, atol=1e-14)
    g = np.random.default_rng(0).normal(size=out.shape)
    direction = np.random.default_rng(1).normal(size=shape)
    got = np.sum(direction * gradient(lambda v: f(v, axis=axis, keepdims=keepdims), x, g))
    if f is np.std and np.size(x) == np.size(out):
        assert got == 0  # each group has one element
        return
    h = 1e-6
    ends = [f(x + s * h * direction, axis=axis, keepdims=keepdims) for s in (1, -1)]
    np.testing.assert_allclose(got, np.sum(g * (ends[0] - ends[1])) / (2 * h), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n", [3, 7, 10])
@pytest.mark.parametrize("keywords", [{"where": True}, {"mean": 0.1}, {"mean": 0.1, "where": True}, {}])
def test_std_of_equal_numbers_has_slope_0_whatever_the_mean_is_rounded_to(n, keywords):
    x = np.full((2, n), 0.1)
    keywords = dict(keywords)
    if "where" in keywords:
        keywords["where"] = np.ones((2, n), bool)
    if "mean" in keywords:
        keywords["mean"] = np.full((2, 1), np.nextafter(0.1, 1))
    for keepdims in (False, True):
        y, pullback = ng.vjp(functools.partial(np.std, axis=1, keepdims=keepdims, **keywords), x)
        np.testing.assert_array_equal(y, np.std(x, axis=1, keepdims=keepdims, **keywords))
        np.testing.assert_array_equal(pullback(np.ones(y.shape))[0], 0)


def test_an_axis_whose_number_is_the_size_less_one():
    x = np.array([[[1.0, 2.0]]])
    np.testing.assert_array_equal(np.median(ng.Tape().variable(x), axis=1).value, [[1.0, 2.0]])


def test_the_mean_of_nothing_has_no_gradient():
    x = np.zeros((3, 0), np.float32)
    with pytest.warns(RuntimeWarning):
        out, pullback = ng.vjp(lambda x: np.mean(x, axis=1), x)
    (found,) = pullback(np.ones(3, np.float32))
    assert np.isnan(out).all()
    assert found.shape == (3, 0)
    assert found.dtype == np.float32


@pytest.mark.parametrize("f", [np.mean, np.var, np.std, lambda x: np.mean(x, where=np.ones(70_000, bool))])
def test_more_elements_than_float16_can_count(f):
    x = np.linspace(-0.1, 0.1, 70_000).astype(np.float16)
    (got,) = ng.vjp(f, x)[1](np.float16(1))
    (want,) = ng.vjp(f, x.astype(float))[1](1.0)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=2e-7)


@pytest.mark.parametrize("f", [np.max, np.min])
def test_a_nan_reaches_the_gradient_of_the_extremum_that_it_is(f):
    x = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 2.0]])
    (g,) = ng.vjp(lambda x: f(x, axis=1), x)[1](np.ones(2))
    np.testing.assert_allclose(g, [[0, np.nan, 0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_array_equal(np.isnan(ng.grad(f)(x)), np.isnan(x))


@pytest.mark.parametrize("f", [np.max, np.min])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("many", [0, 10**9])
def test_places_of_extrema_and_masks_give_the_same(f, axis, many, monkeypatch):
    """One extremum in each row or several, as large arrays and as small ones take them; to second order."""
    monkeypatch.setattr("npgrad.rules.reductions.MANY", many)
    rng = np.random.default_rng(0)
    unique = rng.permutation(np.arange(24.0)).reshape(2, 3, 4)
    for x in (unique, np.asfortranarray(unique), unique[:, ::-1], np.floor(unique / 4)):
        at = x == f(x, axis=axis, keepdims=True)
        g = rng.normal(size=f(x, axis=axis).shape)
        _, pullback = ng.vjp(lambda x: f(x, axis=axis), x)
        share = at / at.sum(axis=axis, keepdims=True)
        np.testing.assert_allclose(pullback(g)[0], share * g.reshape(f(x, axis=axis, keepdims=True).shape), rtol=1e-15)
        (twice,) = ng.hvp(lambda x: np.sum(f(x, axis=axis) ** 2), (x,), (np.ones_like(x),))
        np.testing.assert_allclose(twice, 2 * share, rtol=1e-15)


@pytest.mark.parametrize("many", [0, 10**9])
def test_a_row_without_and_one_with_two_extrema_are_not_taken_for_two_with_one(many, monkeypatch):
    monkeypatch.setattr("npgrad.rules.reductions.MANY", many)
    x = np.array([[1.0, NAN, 0.0], [2.0, 2.0, 0.0]])
    np.testing.assert_array_equal(gradient(lambda v: np.max(v, axis=1), x), [[0, NAN, 0], [0.5, 0.5, 0]])
