"""Statistics, sampled functions, polynomials: every declared example, and NumPy's values for all their keywords."""

import numpy as np
import oracle
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng

NAN = np.nan


def gradient(f, x, cotangent=None):
    tape = ng.Tape()
    v = tape.variable(x)
    y = f(v)
    return tape.gradient(y, [v], np.ones(y.shape, y.dtype) if cotangent is None else cotangent)[0]


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", [*rule_checks.examples("statistics"), *rule_checks.examples("polynomials")])
def test_examples(example, check):
    check(example)


def test_average_returns_the_sum_of_weights_too():
    v = ng.Tape().variable(np.arange(6.0).reshape(2, 3))
    both = {"axis": (1, 0), "weights": np.arange(6.0).reshape(3, 2)}
    for keywords in ({}, {"axis": 1}, {"axis": 0, "weights": [1.0, 3.0]}, both):
        for got, want in zip(np.average(v, returned=True, **keywords), np.average(v.value, returned=True, **keywords)):
            np.testing.assert_allclose(ng.stop_gradient(got), want)
    with pytest.raises(ZeroDivisionError, match="sum to zero"):
        np.average(v, axis=1, weights=[1.0, -1.0, 0.0])
    with pytest.raises(ValueError, match="weights of shape"):
        np.average(v, axis=1, weights=[1.0, 1.0])


def test_average_differentiates_its_weights():
    x, w = np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(gradient(lambda w: np.average(x, weights=w), w), x - np.average(x, weights=w))


def test_too_few_observations_for_a_covariance():
    with pytest.raises(ValueError, match="too few"):
        np.cov(ng.Tape().variable(np.ones((2, 1))))


def test_correlation_of_a_perfect_pair_is_finite():
    x = np.array([[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])
    assert np.all(np.isfinite(gradient(lambda v: np.corrcoef(v)[0, 1], x)))


@pytest.mark.parametrize("f", [np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin])
def test_nan_entries_get_no_gradient_and_spoil_none(f):
    x = np.array([[1.0, NAN, 3.0], [NAN, 5.0, 6.5]])
    got = gradient(lambda v: f(v, axis=1), x)
    assert np.all(got[np.isnan(x)] == 0)
    for row, g in zip(x, got):
        known = ~np.isnan(row)
        plain = getattr(np, f.__name__.removeprefix("nan"))
        np.testing.assert_allclose(g[known], gradient(plain, row[known]), rtol=1e-12)


@pytest.mark.parametrize("f", [np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin])
def test_a_slice_of_nan_warns_as_numpy_does_and_gets_nothing(f):
    x = np.array([[NAN, NAN], [1.0, 2.0]])
    v = ng.Tape().variable(x)
    with pytest.warns(RuntimeWarning):
        out = f(v, axis=1)
    with np.errstate(all="ignore"):
        g = v.tape.gradient(out, [v], np.ones(2))[0]
    assert np.isnan(out.value[0])
    np.testing.assert_array_equal(g[0], [0, 0])
    assert np.all(np.isfinite(g[1]))


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from(["full", "same", "valid"]), st.booleans())
def test_convolutions_of_any_lengths(m, n, mode, reverse):
    f = np.correlate if reverse else np.convolve
    x, y = np.random.default_rng(m).normal(size=m), np.random.default_rng(n + 9).normal(size=n)
    tape = ng.Tape()
    v, w = tape.variable(x), tape.variable(y)
    out = f(v, w, mode)
    np.testing.assert_allclose(out.value, f(x, y, mode), rtol=1e-13, atol=1e-14)
    g = np.random.default_rng(0).normal(size=out.shape)
    dx, dy = tape.gradient(out, [v, w], g)
    np.testing.assert_allclose(dx, [np.dot(g, f(e, y, mode)) for e in np.eye(m)], atol=1e-13)  # linear in each
    np.testing.assert_allclose(dy, [np.dot(g, f(x, e, mode)) for e in np.eye(n)], atol=1e-13)


def test_default_modes_are_numpys():
    v = ng.Tape().variable([1.0, 2.0, 3.0])
    assert np.convolve(v, [1.0, 1.0]).shape == (4,)
    assert np.correlate(v, [1.0, 1.0]).shape == (2,)
    with pytest.raises(ValueError, match="'full'"):
        np.convolve(v, [1.0], mode="half")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_gradient_is_linear_and_as_numpys(data):
    edge_order = data.draw(st.sampled_from([1, 2]))
    shape = data.draw(st.lists(st.integers(edge_order + 1, 5), min_size=1, max_size=3))
    f = np.random.default_rng(shape).normal(size=shape)
    spacings = [data.draw(st.sampled_from([0.5, 2, np.cumsum(np.linspace(0.5, 1.5, n)) ** 1.5])) for n in shape]
    got, want = (np.gradient(x, *spacings, edge_order=edge_order) for x in (ng.Tape().variable(f), f))
    for a, b in zip(got, want) if len(shape) > 1 else [(got, want)]:
        np.testing.assert_allclose(a.value, b, rtol=1e-11, atol=1e-12)


def test_gradient_says_what_is_wrong():
    v = ng.Tape().variable(np.ones((3, 4)))
    with pytest.raises(TypeError, match="2 axes got 3 spacings"):
        np.gradient(v, 1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="coordinates of shape"):
        np.gradient(v, np.arange(3.0), axis=1)
    with pytest.raises(ValueError, match="edge_order"):
        np.gradient(v, edge_order=3)
    with pytest.raises(ValueError, match="needs 2 elements"):
        np.gradient(v[:1], axis=0)


def test_coordinates_of_gradient_and_trapezoid_are_differentiable():
    t = np.array([0.0, 0.7, 1.1, 2.0])
    y = np.array([1.0, 3.0, 2.0, 5.0])
    np.testing.assert_allclose(gradient(lambda t: np.trapezoid(y, t), t), [-2, -0.5, -1, 3.5])
    slope = ng.grad(lambda t: np.gradient(t**2, t, edge_order=2)[1])(
        t
    )  # the slope of a square is 2t, whatever the grid
    np.testing.assert_allclose(slope, [0, 2, 0, 0], atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-2, 6), max_size=5), st.sampled_from([{}, {"left": -1.0}, {"right": 2.0}, {"period": 3.0}]))
def test_interp_as_numpys(x, keywords):
    xp, fp = np.array([0.0, 0.9, 2.1, 2.9]), np.array([1.0, -1.0, 0.5, 2.0])
    got = np.interp(np.array(x), xp, ng.Tape().variable(fp), **keywords)
    np.testing.assert_allclose(got.value, np.interp(x, xp, fp, **keywords), rtol=1e-9, atol=1e-9)


def test_interp_at_nodes_outside_and_at_nan():
    xp, fp = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 4.0])
    x = np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(gradient(lambda v: np.interp(v, xp, fp), x), [0, 2, 1, 1, 1, 0])
    assert np.isnan(np.interp(ng.Tape().variable([NAN]), xp, fp).value[0])
    assert np.array_equal(np.interp(ng.Tape().variable([5.0]), xp[:1], fp[:1]), [0.0])  # constant: nothing to record


def test_diff_with_ends_and_no_difference():
    v = ng.Tape().variable(np.array([[1.0, 4.0, 9.0]]))
    ends = {"append": [[16.0, 25.0]], "n": 2}, {"axis": 0, "prepend": [[0.0, 1.0, 2.0]]}
    for keywords in ({"n": 0}, {"prepend": 0.0}, *ends):
        np.testing.assert_array_equal(np.diff(v, **keywords).value, np.diff(v.value, **keywords))
    with pytest.raises(ValueError, match="0 or more"):
        np.diff(v, n=-1)


def test_unwrap_and_bincount():
    phases = np.array([0.0, 3.0, -3.0, 0.5])
    np.testing.assert_array_equal(gradient(np.unwrap, phases, np.arange(4.0)), np.arange(4.0))
    counted = gradient(lambda w: np.bincount([0, 2, 0], w, 4), np.ones(3), np.arange(1.0, 5.0))
    np.testing.assert_array_equal(counted, [1, 3, 1])


@pytest.mark.parametrize("f", [np.linspace, np.geomspace])
@pytest.mark.parametrize("keywords", [{"num": 1}, {"num": 0}, {"num": 3, "endpoint": False}, {"num": 4, "axis": -1}])
def test_spaces_as_numpys(f, keywords):
    start, stop = np.array([1.0, 2.0]), np.array([3.0, 1.0])
    np.testing.assert_allclose(
        f(ng.Tape().variable(start), stop, **keywords).value, f(start, stop, **keywords), rtol=1e-13
    )
    np.testing.assert_allclose(f(1.0, ng.Tape().variable(stop), **keywords).value, f(1.0, stop, **keywords), rtol=1e-13)


def test_spaces_of_negative_numbers_and_steps():
    got = np.geomspace(ng.Tape().variable(-1.0), -100.0, 3)
    np.testing.assert_allclose(got.value, [-1, -10, -100])
    samples, step = np.linspace(ng.Tape().variable(0.0), 3.0, 4, retstep=True)
    np.testing.assert_allclose(samples.value, [0, 1, 2, 3])
    assert step.value == 1.0


POLYNOMIALS = [
    lambda p: np.polyval(p, 2.0), lambda p: np.polyval([1.0, 2.0], p), lambda p: np.polyadd(p, [1.0]),
    lambda p: np.polysub([1.0], p), lambda p: np.polymul(p, [1.0, -1.0]), np.polyder, lambda p: np.polyder(p, 2),
    np.polyint, lambda p: np.polyint(p, 2, 3.0), np.vander, lambda p: np.vander(p, 2, True), lambda p: np.polyint(p, 0),
]  # fmt: skip


@pytest.mark.parametrize("f", POLYNOMIALS)
def test_polynomials_as_numpys(f):
    p = np.array([3.0, -1.0, 2.0])
    np.testing.assert_allclose(ng.stop_gradient(f(ng.Tape().variable(p))), f(p), rtol=1e-13)


def test_polynomials_without_a_rule_say_so():
    p = ng.Tape().variable([1.0, 2.0])
    for f in (np.roots, lambda p: np.polydiv(p, [1.0]), lambda p: np.polyfit(p, p, 1)):
        with pytest.raises(TypeError, match=r"np\.(roots|polydiv|polyfit)"):
            f(p)


X3 = np.array([1.0, 2.0, 4.0])
LISTS = [
    (lambda a, v: np.diff(a, prepend=v), [3.0, 1.0, 2.0]), (lambda a, v: np.gradient(a, v), [1.0, 2.0, 4.0]),
    (lambda a, v: np.gradient(a, v), [1, 2, 4]), (lambda a, v: np.gradient(a, v[1]), [1.0, 2.0, 4.0]),
    (lambda a, v: np.cov(v, aweights=a), [1.0, 2.0, 3.0]), (lambda a, v: np.cov(v, fweights=a), [1, 2, 3]),
    (lambda a, v: np.cov([a, a], v), [1.0, 2.0, 3.0]), (lambda a, v: np.var(a, mean=v[:1]), [1.0, 2.0, 3.0]),
    (lambda a, v: np.std(a, mean=v[:1]), [1.0, 2.0, 3.0]),
]  # fmt: skip


@pytest.mark.parametrize(("f", "a"), LISTS)
def test_lists_stand_for_arrays(f, a):
    as_array = np.array(a)
    y = f(a, ng.Tape().variable(X3))
    np.testing.assert_allclose(y.value, f(as_array, X3), rtol=1e-13)
    g = np.random.default_rng(0).normal(size=y.shape)
    want = oracle.differences(lambda v: f(as_array, v), [X3], g)[0]
    np.testing.assert_allclose(gradient(lambda v: f(a, v), X3, g), want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("f", [np.linspace, np.logspace, np.geomspace])
def test_spaces_from_float32_to_a_number_have_numpys_dtype(f):
    for x in (np.float32(0.5), np.array([0.5, 2.0], np.float32)):
        for ends in ((x, 1), (x, 1.5), (1, x), (x, x + 1)):
            on_tape = [ng.Tape().variable(e) if e is x else e for e in ends]
            y = f(*on_tape, 3)
            assert y.dtype == f(*ends, 3).dtype
            np.testing.assert_allclose(y.value, f(*ends, 3), rtol=1e-6)


@pytest.mark.parametrize("f", [np.linspace, np.logspace])
def test_spaces_to_a_list(f):
    got = f(ng.Tape().variable(1.0), [2.0, 3.0], 3)
    np.testing.assert_allclose(got.value, f(1.0, [2.0, 3.0], 3), rtol=1e-13)
    got = f([2.0, 3.0], ng.Tape().variable(np.array([1.0, 0.5])), 3)
    np.testing.assert_allclose(got.value, f([2.0, 3.0], np.array([1.0, 0.5]), 3), rtol=1e-13)


def test_logspace_along_another_axis():
    start = np.array([1.0, 2.0])
    got = np.logspace(ng.Tape().variable(start), 3.0, 3, axis=-1)
    np.testing.assert_allclose(got.value, np.logspace(start, 3.0, 3, axis=-1), rtol=1e-13)


@pytest.mark.parametrize("weights", [{"fweights": [1, 2, 3, 1]}, {"aweights": [0.5, 1.0, 2.0, 1.0]}])
def test_covariance_with_one_kind_of_weights(weights):
    x = np.random.default_rng(0).normal(size=(2, 4))
    weights = {name: np.array(w) for name, w in weights.items()}
    np.testing.assert_allclose(np.cov(ng.Tape().variable(x), **weights).value, np.cov(x, **weights), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "axis", "x"), [((2, 3), 1, [0.0, 1.0, 3.0]), ((2, 1), 1, [2.0]), ((3, 2), 0, [0.0, 1.0, 3.0])]
)
def test_trapezoid_along_any_axis_over_places(shape, axis, x):
    y = np.random.default_rng(0).normal(size=shape)
    got = np.trapezoid(ng.Tape().variable(y), np.array(x), axis=axis)
    np.testing.assert_allclose(got.value, np.trapezoid(y, np.array(x), axis=axis), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "f2"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, c: np.interp(x, [0.0, 1.0, 2.0], c),
        lambda x, c: np.interp(x, c[::-1], [5.0, 3.0, 9.0], period=4),
        lambda x, c: np.cov(x, aweights=c * 20),
        lambda x, c: np.cov(x, fweights=c.astype("u1") * 20),
        lambda x, c: np.average(x, weights=c / c.dtype.type(3)),
        lambda x, c: np.gradient(x, c),
        lambda x, c: np.geomspace(x, c, 4),
        lambda x, c: np.geomspace(c, x, 4),
    ],
)
def test_constants_of_few_bits(f, dtype):
    """They lose nothing, and falling numbers without a sign don't wrap around: values are NumPy's."""
    x, c = np.array([1.3, 0.2, 0.7]), np.array([5, 3, 1]).astype(dtype)
    np.testing.assert_allclose(f(ng.Tape().variable(x), c).value, f(x, c), rtol=1e-13)


def test_numbers_counted_that_change_later_do_not_reach_the_gradient():
    places = np.array([0, 1])
    _, pullback = ng.vjp(lambda w: np.bincount(places, w, 3), np.ones(2))
    places[:] = 2
    np.testing.assert_array_equal(pullback(np.array([1.0, 2.0, 3.0]))[0], [1.0, 2.0])
