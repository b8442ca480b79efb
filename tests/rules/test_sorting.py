"""Sorting, quantiles and choice: every declared example, ties, NaN, and what is refused."""

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgrad as ng

NAN = np.nan
METHODS = [
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
]  # fmt: skip


def gradient(f, x, cotangent=None):
    tape = ng.Tape()
    v = tape.variable(x)
    y = f(v)
    return tape.gradient(y, [v], np.ones(y.shape, y.dtype) if cotangent is None else cotangent)[0]


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("sorting"))
def test_examples(example, check):
    check(example)


def test_equal_elements_keep_their_order():
    x, g = np.array([2.0, 1.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(gradient(np.sort, x, g), [3, 1, 4, 2])


def test_median_among_equals_goes_to_the_middle_one():
    np.testing.assert_array_equal(gradient(np.median, np.array([1.0, 2.0, 2.0, 2.0, 5.0])), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(gradient(np.median, np.array([2.0, 2.0, 1.0, 2.0])), [0.5, 0.5, 0, 0])


def test_quantiles_of_data_with_nan():
    x = np.array([[3.0, NAN, 1.0, 2.0], [4.0, 1.0, 2.0, 3.0]])
    assert np.array_equal(np.median(ng.Tape().variable(x), axis=1).value, [NAN, 2.5], equal_nan=True)
    got = gradient(lambda v: np.nanmedian(v, axis=1), x)
    np.testing.assert_array_equal(got, [[0, 0, 0, 1], [0, 0, 0.5, 0.5]])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        got = gradient(lambda v: np.nanmedian(v, axis=1), np.array([[NAN, NAN], [1.0, 2.0]]))
    np.testing.assert_array_equal(got, [[0, 0], [0.5, 0.5]])


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 9),
    st.sampled_from(METHODS),
    st.floats(0, 1),
    st.sampled_from([np.quantile, np.nanquantile]),
    st.booleans(),
)
def test_any_quantile_is_the_weighted_mean_that_its_gradient_says(n, method, q, function, keepdims):
    x = np.random.default_rng(n).permutation(n) * 1.5 + 0.25
    v = ng.Tape().variable(x)
    out = function(v, q, method=method, keepdims=keepdims)
    want = function(x, q, method=method, keepdims=keepdims)
    np.testing.assert_array_equal(out.value, want)
    weights = gradient(lambda v: function(v, q, method=method, keepdims=keepdims), x)
    np.testing.assert_allclose(np.sum(weights), 1)
    np.testing.assert_allclose(np.sum(weights * x), np.sum(want), rtol=1e-12)
    assert np.count_nonzero(weights) <= 2


@settings(deadline=None, max_examples=60)
@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4), st.data())
def test_sorting_along_any_axis_moves_the_gradient_back(shape, data):
    x = np.random.default_rng(shape).normal(size=shape)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    kth = data.draw(st.integers(0, (x.size if axis is None else shape[axis]) - 1))
    for f in (lambda v: np.sort(v, axis=axis), lambda v: np.partition(v, kth, axis=axis)):
        out = f(ng.Tape().variable(x)).value
        np.testing.assert_array_equal(np.sort(out, axis=axis), np.sort(x, axis=axis))
        got = gradient(f, x, out)  # each element's cotangent is the element itself
        np.testing.assert_array_equal(got, x)


def test_partition_has_the_small_ones_first():
    x = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    out = np.partition(ng.Tape().variable(x), 2).value
    assert max(out[:2]) < out[2] == 3 < min(out[3:])


def test_take_along_axis_adds_up_repeated_places():
    x = np.arange(6.0).reshape(2, 3)
    index = np.array([[2, 2, 0], [1, 1, 1]])
    got = gradient(lambda v: np.take_along_axis(v, index, axis=1), x, np.arange(1.0, 7.0).reshape(2, 3))
    np.testing.assert_array_equal(got, [[3, 0, 3], [0, 15, 0]])
    with pytest.raises(ValueError, match="dimensions"):
        np.take_along_axis(ng.Tape().variable(x), np.array([0, 1]), axis=1)


def test_select_takes_the_first_condition_that_holds():
    x = np.array([1.0, 2.0, 3.0])
    choose = lambda v: np.select([x > 2, x > 1], [v * 10, v * 100], default=v)
    np.testing.assert_array_equal(gradient(choose, x), [1, 100, 10])
    with pytest.raises(ValueError, match="1 conditions and 2 choices"):
        np.select([x > 2], [ng.Tape().variable(x)] * 2)


def test_choose_and_its_modes():
    v = ng.Tape().variable([1.0, 2.0])
    assert np.array_equal(np.choose([1, 0], [v, v * 10]).value, [10.0, 2.0])
    assert np.array_equal(np.choose([7, -2], [v, v * 10], mode="clip").value, [10.0, 2.0])
    with pytest.raises(ValueError, match="from -1 to 7"):
        np.choose([7, -1], [v, v])


def test_piecewise_evaluates_each_piece_where_it_holds():
    x = np.array([-4.0, 0.0, 4.0])
    pieces = lambda v: np.piecewise(v, [v > 0, v < 0], [np.sqrt, lambda u: -u, 7.0])
    np.testing.assert_array_equal(pieces(ng.Tape().variable(x)).value, [4, 7, 2])
    np.testing.assert_array_equal(gradient(pieces, x), [-1, 0, 0.25])
    one = lambda v: np.piecewise(v, v > 0, [np.square, 1.0])
    np.testing.assert_array_equal(gradient(one, x), [0, 0, 8])
    with pytest.raises(ValueError, match="as many functions"):
        np.piecewise(ng.Tape().variable(x), [x > 0], [np.sin, np.cos, np.tan])


def test_what_is_refused():
    v = ng.Tape().variable([1.0, 2.0])
    with pytest.raises(TypeError, match="weights="):
        np.quantile(v, 0.5, weights=np.ones(2), method="inverted_cdf")
    with pytest.raises(TypeError, match="unique"):
        np.unique(v)
    with pytest.raises(TypeError, match="histogram"):
        np.histogram([1, 2], weights=v)
    with pytest.raises(TypeError, match="out="):
        np.median(v, out=np.empty(()))


def test_places_are_plain_arrays():
    v = ng.Tape().variable([3.0, 1.0, 2.0])
    for f in (np.argsort, np.lexsort, lambda v: np.argpartition(v, 1), lambda v: np.searchsorted(v[:1], 2.0)):
        assert not isinstance(f(v), ng.Variable)
    np.testing.assert_array_equal(np.digitize(v, [1.5, 2.5]), [2, 0, 1])


def test_overwrite_input_leaves_the_input_alone():
    x = np.array([3.0, 1.0, 2.0])
    np.median(ng.Tape().variable(x), overwrite_input=True)
    np.testing.assert_array_equal(x, [3, 1, 2])


@pytest.mark.parametrize("f", [np.quantile, np.nanquantile, np.percentile, np.nanpercentile])
@pytest.mark.parametrize("x", [np.arange(3.0), [1.0, 3.0, 2.0]])
def test_a_variable_as_q_is_refused_by_name(f, x):
    with pytest.raises(TypeError, match=rf"np\.{f.__name__} can't be differentiated with respect to q"):
        f(x, ng.Tape().variable(0.5))


def test_take_along_axis_takes_lists():
    x = np.array([3.0, 1.0, 2.0])
    np.testing.assert_array_equal(gradient(lambda v: np.take_along_axis(v, [1, 1], 0), x), [0, 2, 0])


def test_a_row_of_nan_longer_than_the_place_of_its_median():
    x = np.array([[NAN] * 4, [4.0, 1.0, 2.0, 3.0]])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        got = gradient(lambda v: np.nanmedian(v, axis=1), x)
    np.testing.assert_array_equal(got, [[0, 0, 0, 0], [0, 0, 0.5, 0.5]])
