"""Elementwise rules: every declared example, and the points where a formula alone would fail."""

import math
import operator

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgrad as ng
from npgrad.rules.elementwise import bessel_i, sinc_derivative

INF, NAN = np.inf, np.nan


def gradient(f, *args):
    """The gradient of the sum of f for each argument."""
    found = ng.grad(lambda *a: np.sum(f(*a)), argnums=tuple(range(len(args))))(*map(np.asarray, args))
    return found[0] if len(args) == 1 else found


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", [*rule_checks.examples("elementwise"), *rule_checks.examples("operator")])
def test_examples(example, check):
    check(example)


NUMBERS = [2, 3, 1, 0, -1, 0.5, -2.0, 2.5, True]


@pytest.mark.parametrize("n", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_as_exponent_is_a_constant_in_the_precision_of_x(n, dtype):
    x = np.array([0.5, 1.5, 2.0], dtype)
    tape = ng.Tape()
    v = tape.variable(x)
    y = v**n
    assert y.dtype == (x**n).dtype == dtype
    assert np.array_equal(y.value, x**n)
    (pullback,) = tape.records[-1].pullbacks
    assert pullback(np.ones(3, dtype)).dtype == dtype
    np.testing.assert_allclose(tape.gradient(np.sum(y), [v])[0], n * x.astype(float) ** (n - 1), rtol=1e-6)


@pytest.mark.parametrize("base", [2, 2.0, 0.5, 1, 0, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_as_base_is_a_constant_in_the_precision_of_the_exponent(base, dtype):
    x = np.array([0.5, 1.5, 2.0], dtype)
    tape = ng.Tape()
    v = tape.variable(x)
    y = base**v
    assert np.array_equal(y.value, base**x)
    (pullback,) = tape.records[-1].pullbacks
    assert y.dtype == pullback(np.ones(3, dtype)).dtype == dtype
    want = float(base) ** x.astype(float) * (math.log(base) if base else 0)
    np.testing.assert_allclose(tape.gradient(np.sum(y), [v])[0], want, rtol=1e-6)


SCALAR_EXPRESSIONS = [
    lambda x: x + 1, lambda x: 1 - x, lambda x: 2.5 * x, lambda x: x / 3, lambda x: 3.0 / x, lambda x: x % 0.7,
    lambda x: 5.0 % x, lambda x: np.maximum(x, 0.0), lambda x: np.minimum(0.5, x), lambda x: np.hypot(x, 1),
    lambda x: np.arctan2(x, 2.0), lambda x: np.arctan2(2.0, x), lambda x: np.logaddexp(x, 0.0),
    lambda x: np.logaddexp(1, x), lambda x: np.copysign(x, -1.0), lambda x: np.where(x > 0.3, x, 0.0),
    lambda x: np.where(x > 0.3, 1, x), lambda x: np.clip(x, 0.0, 1), lambda x: np.fmax(x, 0.1),
    lambda x: np.fmod(x, 0.7), lambda x: np.nan_to_num(x, nan=1.0), lambda x: np.power(x, 2.0),
    lambda x: np.logaddexp2(x, 1), lambda x: x ** np.float32(2),
]  # fmt: skip


@pytest.mark.parametrize("f", SCALAR_EXPRESSIONS)
def test_numbers_never_widen_float32(f):
    x = np.array([0.2, 0.4, 1.3], np.float32)
    tape = ng.Tape()
    v = tape.variable(x)
    y = f(v)
    assert y.dtype == f(x).dtype == np.float32
    for record in tape.records[1:]:
        for pullback in record.pullbacks:
            assert pullback(np.ones(record.shape, np.float32)).dtype == np.float32
    got = tape.gradient(y, [v], np.ones(3, np.float32))[0]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, gradient(f, x.astype(float)), rtol=1e-5)


BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.power, np.float_power, np.remainder, np.fmod, np.maximum,
    np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot, np.arctan2, np.copysign,
]  # fmt: skip


@pytest.mark.parametrize("f", BINARY)
def test_a_list_beside_a_variable_is_an_array(f):
    x, y = np.array([0.5, 1.5, 2.2]), [2.0, 3.0, 1.0]
    np.testing.assert_array_equal(gradient(lambda x: f(x, y), x), gradient(lambda x: f(x, np.array(y)), x))
    np.testing.assert_array_equal(gradient(lambda x: f(y, x), x), gradient(lambda x: f(np.array(y), x), x))


def test_integer_exponents_of_zero_and_negative_bases():
    x, n = np.array([0.0, 0.0, 0.0, -2.0, -2.0, -2.0, -1.5]), np.array([0.0, 1.0, 2.0, 0.0, 2.0, 3.0, -1.0])
    dx, dn = gradient(np.power, x, n)
    np.testing.assert_allclose(dx, [0, 1, 0, 0, -4, 12, -1 / 2.25])
    np.testing.assert_array_equal(dn, np.zeros(7))
    for k in range(4):
        np.testing.assert_allclose(gradient(lambda x, k=k: x**k, x), k * x ** max(k - 1, 0))
        second = ng.grad(lambda x, k=k: np.sum(ng.grad(lambda x: np.sum(x**k))(x)))(x)
        np.testing.assert_allclose(second, k * (k - 1) * x ** max(k - 2, 0))


def test_mixed_second_derivative_of_power_at_exponent_zero():
    mixed = ng.grad(lambda y: ng.grad(lambda x: x**y)(np.array(2.0)))(np.array(0.0))
    assert mixed == 0.5  # d/dy of y·x^(y-1)


@pytest.mark.parametrize("pair", [(np.maximum, max), (np.minimum, min), (np.fmax, max), (np.fmin, min)])
def test_equal_arguments_share_evenly(pair):
    f, choose = pair
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 1.0])
    dx, dy = gradient(f, x, y)
    np.testing.assert_array_equal(dx, [0.5 if a == b else float(choose(a, b) == a) for a, b in zip(x, y)])
    np.testing.assert_array_equal(dx + dy, np.ones(3))


def test_fmax_and_fmin_give_the_gradient_to_the_number_beside_a_nan():
    x, y = np.array([NAN, 1.0, NAN]), np.array([1.0, NAN, NAN])
    for f in (np.fmax, np.fmin):
        dx, dy = gradient(f, x, y)
        np.testing.assert_array_equal(dx, [0, 1, 0])
        np.testing.assert_array_equal(dy, [1, 0, 0])


def test_clip_passes_the_gradient_at_its_bounds():
    x = np.array([-0.5, 0.0, 0.25, 1.0, 1.5, NAN])
    np.testing.assert_array_equal(gradient(lambda x: np.clip(x, 0, 1), x), [0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(gradient(lambda x: np.clip(x, 0, None), x), [0, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(gradient(lambda x: x.clip(max=1), x), [1, 1, 1, 1, 0, 0])
    parts = gradient(np.clip, x[:-1], np.zeros(5), np.ones(5))
    np.testing.assert_array_equal(np.sum(parts, axis=0), np.ones(5))
    np.testing.assert_array_equal(parts[1], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(parts[2], [0, 0, 0, 0, 1])


def test_crossed_bounds_of_clip_give_the_upper_one_as_numpy_does():
    dx, low, high = gradient(np.clip, np.array([0.0, 2.5, 9.0]), np.full(3, 3.0), np.full(3, 2.0))
    np.testing.assert_array_equal(np.stack([dx, low, high]), [[0, 0, 0], [0, 0, 0], [1, 1, 1]])


ORIGIN = [
    (np.abs, [0.0], [0.0]),
    (np.fabs, [0.0], [0.0]),
    (np.hypot, [0.0, 0.0], [0.0, 0.0]),
    (np.arctan2, [0.0, 0.0], [0.0, 0.0]),
    (np.hypot, [1e200, 1e200], [0.5**0.5, 0.5**0.5]),
    (np.arctan2, [1e200, 1e200], [5e-201, -5e-201]),
    (np.arctan, [1e200], [0.0]),
    (np.arcsinh, [1e200], [1e-200]),
    (np.sinc, [0.0], [0.0]),
    (np.logaddexp, [-INF, -INF], [0.0, 0.0]),
    (np.logaddexp, [-INF, 1.0], [0.0, 1.0]),
    (np.logaddexp, [INF, 1.0], [1.0, 0.0]),
    (np.logaddexp, [INF, INF], [0.5, 0.5]),
    (np.logaddexp2, [-INF, -INF], [0.0, 0.0]),
    (np.logaddexp, [1000.0, 1000.0], [0.5, 0.5]),
    (np.logaddexp, [1e300, 1e300], [0.5, 0.5]),
    (np.logaddexp, [-800.0, 0.0], [0.0, 1.0]),
    (np.maximum, [NAN, 1.0], [0.0, 0.0]),
    (np.copysign, [0.0, -1.0], [0.0, 0.0]),
    (np.heaviside, [0.0, 0.25], [0.0, 1.0]),
    (np.nan_to_num, [NAN], [0.0]),
    (np.nan_to_num, [INF], [0.0]),
    (np.tanh, [800.0], [0.0]),
]


@pytest.mark.parametrize(("f", "at", "want"), ORIGIN)
@pytest.mark.filterwarnings("error")
def test_conventions(f, at, want):
    got = np.ravel(gradient(f, *at))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    beside = gradient(f, *(np.array([a, 0.5]) for a in at))  # another element doesn't change it
    np.testing.assert_allclose(np.reshape(beside, (-1, 2))[:, 0], want, rtol=1e-12)


def test_derivatives_of_sinc_at_and_near_zero():
    derivatives = [np.sinc]
    for _ in range(4):
        derivatives.append(ng.grad(derivatives[-1]))
    at_zero = [float(d(0.0)) for d in derivatives]
    np.testing.assert_allclose(at_zero, [1, 0, -(math.pi**2) / 3, 0, math.pi**4 / 5], atol=1e-15)
    x = np.array([1e-9, 1e-5, 1e-3])
    np.testing.assert_allclose(sinc_derivative(x, 1), -(math.pi**2) * x / 3 + math.pi**4 * x**3 / 30, rtol=1e-11)


@pytest.mark.parametrize("order", range(7))
def test_series_and_recurrence_of_sinc_meet(order):
    border = (1 + order) / math.pi
    near, far = sinc_derivative(np.array([border * (1 - 1e-9), border * (1 + 1e-9)]), order)
    assert abs(near - far) < 1e-7 * math.pi ** (order + 1)
    x = np.linspace(-3, 3, 41).astype(np.longdouble)
    t = (np.arange(4000) + np.longdouble(0.5)) / 4000  # sinc x is the mean of cos(πxt) over 0 < t < 1
    pi = np.arccos(np.longdouble(-1))
    mean = np.mean((pi * t) ** order * np.cos(pi * x[:, None] * t + order * pi / 2), axis=1)
    np.testing.assert_allclose(sinc_derivative(x.astype(float), order), mean.astype(float), atol=1e-6 * math.pi**order)


@pytest.mark.parametrize("order", range(4))
def test_bessel_functions_against_their_power_series(order):
    x = np.array([-20.0, -3.0, 0.0, 0.1, 1.0, 8.0, 30.0])
    series = sum((x / 2) ** (2 * k + order) / (math.factorial(k) * math.factorial(k + order)) for k in range(80))
    np.testing.assert_allclose(bessel_i(x, order), series, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(bessel_i(x, 0), np.i0(x), rtol=1e-12)


def test_results_constant_almost_everywhere_are_plain_arrays():
    v = ng.Tape().variable([0.5, -1.5])
    for f in (np.sign, np.floor, np.ceil, np.rint, np.trunc, np.round, np.signbit, np.isfinite, np.spacing):
        assert type(f(v)) is np.ndarray
        assert np.array_equal(f(v), f(v.value))
    for f in (operator.lt, operator.ge, operator.eq, np.floor_divide, np.isclose, np.equal):
        assert np.array_equal(f(v, 0.5), f(v.value, 0.5))
    quotient, rest = np.divmod(v, 0.4)
    assert type(quotient) is np.ndarray
    assert type(rest) is ng.Variable
    whole = np.modf(v)[1]
    exponent = np.frexp(v)[1]
    assert type(whole) is type(exponent) is np.ndarray


def test_what_a_rule_cannot_do_is_said():
    v = ng.Tape().variable([0.5, -1.5])
    with pytest.raises(TypeError, match="nextafter"):
        np.nextafter(v, 1.0)
    with pytest.raises(TypeError, match="place of where="):
        np.exp(v, where=np.array([True, False]))
    with pytest.raises(TypeError, match="out="):
        np.exp(v, out=np.empty(2))
    with pytest.raises(TypeError, match="out="):
        np.clip(v, 0, 1, np.empty(2))
    with pytest.raises(TypeError, match="complex128"):
        v * np.array([1j, 2j])
    with pytest.raises(TypeError, match="object"):
        v * np.array([1, 2], object)


def test_where_with_one_argument_finds_places():
    v = ng.Tape().variable([0.0, -1.5, 0.0, 2.0])
    np.testing.assert_array_equal(np.where(v)[0], [1, 3])
    np.testing.assert_array_equal(np.where(v, 1.0, 2.0), [2, 1, 2, 1])


DIFFERENTIABLE_AT_ALL = [np.exp, np.sin, np.tanh, np.square, np.arctan, np.sinc, np.expm1, np.arcsinh, operator.neg]


@settings(deadline=None, max_examples=40)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=st.floats(-3, 3)),
    st.sampled_from(DIFFERENTIABLE_AT_ALL),
    st.sampled_from(["C", "F", "reversed", "read-only"]),
)
def test_any_shape_and_layout(x, f, layout):
    x = np.array(x, order="F") if layout == "F" else x[::-1] if layout == "reversed" and x.ndim else x.copy()
    x.flags.writeable = layout != "read-only"
    before = x.copy()
    got = gradient(f, x)
    h = 1e-6
    np.testing.assert_allclose(got, (f(x + h) - f(x - h)) / (2 * h), rtol=1e-6, atol=1e-8)
    assert got.shape == x.shape
    assert np.array_equal(x, before)


@settings(deadline=None, max_examples=40)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3), st.integers(0, 5))
def test_any_pair_of_broadcast_shapes(shapes, which):
    f = [np.add, np.multiply, np.divide, np.hypot, np.arctan2, np.power][which]
    x, y = (np.random.default_rng([i, *s]).uniform(0.5, 2, s) for i, s in enumerate(shapes.input_shapes))
    dx, dy = gradient(f, x, y)
    assert (dx.shape, dy.shape) == (x.shape, y.shape)
    h = 1e-6
    wide_x, wide_y = np.broadcast_arrays(x, y)
    for got, ends in ((dx, (wide_x + h, wide_y, wide_x - h, wide_y)), (dy, (wide_x, wide_y + h, wide_x, wide_y - h))):
        slope = (f(*ends[:2]) - f(*ends[2:])) / (2 * h)
        extra = slope.ndim - got.ndim
        axes = tuple(i for i in range(slope.ndim) if i < extra or got.shape[i - extra] != slope.shape[i])
        np.testing.assert_allclose(got, np.sum(slope, axis=axes).reshape(got.shape), rtol=1e-6, atol=1e-8)


def test_nan_to_num_leaves_the_callers_array_alone():
    x = np.array([1.0, NAN, INF])
    v = ng.Tape().variable(x)
    with pytest.raises(TypeError, match="copy=False would change a Variable in place"):
        np.nan_to_num(v, copy=False)
    with pytest.raises(TypeError, match="copy=False"):
        np.nan_to_num(v, False)
    np.testing.assert_array_equal(x, [1.0, NAN, INF])


def test_heaviside_of_a_list():
    np.testing.assert_array_equal(gradient(lambda h: np.heaviside([0.0, 1.0, -1.0], h), np.full(3, 0.5)), [1, 0, 0])


FLAT = [
    (np.tanh, lambda x: 1 / np.cosh(x) ** 2, lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2, 300.0),
    (np.expm1, np.exp, np.exp, 300.0),
]


@pytest.mark.parametrize(("f", "first", "second", "end"), FLAT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes_keep_their_digits_where_the_function_is_flat(f, first, second, end, dtype):
    x = np.linspace(-end, 5, 1500).astype(dtype)
    if dtype == np.float32:
        x = x[x > -40]
    exact = x.astype(np.longdouble)
    rtol = 100 * np.finfo(dtype).eps
    slope, pullback = ng.vjp(lambda x: ng.vjp(f, x)[1](np.ones(x.shape, dtype))[0], x)
    assert slope.dtype == dtype
    np.testing.assert_allclose(slope, first(exact).astype(float), rtol=rtol)
    np.testing.assert_allclose(pullback(np.ones_like(x))[0], second(exact).astype(float), rtol=rtol)


def test_the_slope_of_tanh_at_infinity_and_nan():
    np.testing.assert_array_equal(gradient(np.tanh, np.array([-INF, 0.0, INF, NAN, -800.0])), [0, 1, 0, NAN, 0])
    assert gradient(np.tanh, np.array(20.0)) == pytest.approx(1 / math.cosh(20) ** 2, rel=1e-14)


def test_logaddexp_at_infinity_beside_a_python_number_stays_in_float32():
    tape = ng.Tape()
    np.logaddexp(tape.variable(np.array([INF, 1.0], np.float32)), 2.0)
    (pullback,) = (p for p in tape.records[-1].pullbacks if p is not None)
    assert pullback(np.ones(2, np.float32)).dtype == np.float32


def test_second_derivative_of_logaddexp_beside_an_infinity():
    slope = ng.grad(lambda x: np.sum(np.logaddexp(x, np.array([1.0, 1.0]))))
    share = 1 / (1 + math.exp(1.0 - 2.0))
    np.testing.assert_allclose(gradient(slope, np.array([INF, 2.0])), [0, share * (1 - share)], rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (3,), ()])
def test_where_with_a_condition_that_broadcasts(shape):
    mask = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2 == 0
    got = gradient(lambda x: np.where(mask, x, 0.0), np.ones((2, 3)))
    np.testing.assert_array_equal(got, np.broadcast_to(mask, (2, 3)))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "?", "f2", "f4"])
def test_powers_with_constants_of_fewer_digits(dtype):
    """Each gradient is that with the same numbers in float64: an exponent's 0 - 1, a base's logarithm."""
    x, constant = np.array([1.3, 40.0, 0.7]), np.array([1, 0, 120]).astype(dtype)
    wide = constant.astype(float)
    for f in (lambda x, c: np.power(x, c), lambda x, c: np.power(c, x), lambda x, c: np.power.outer(c, x)):
        np.testing.assert_allclose(gradient(lambda x: f(x, constant), x), gradient(lambda x: f(x, wide), x), rtol=1e-13)  # noqa: B023


def test_the_smallest_int8_as_an_exponent():
    got = gradient(lambda x: x ** np.array([-128], np.int8), np.array([1.01]))
    np.testing.assert_allclose(got, [-128 * 1.01**-129], rtol=1e-13)
