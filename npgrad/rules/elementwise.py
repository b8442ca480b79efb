"""Elementwise functions: one line each.

A broadcast argument's gradient is summed to its shape by the engine, so a rule just multiplies by the local slope.

Conventions where there is no slope, or none that a formula gives: |x| has 0 at 0, hypot and arctan2 have 0 at the
origin; maximum, minimum, fmax and fmin split evenly between equal arguments (maximum and
minimum give nothing where the result is NaN); clip passes the gradient at its bounds,
both included; x**0 has 0 in x, also at 0; x**y has 0 in y where x is 0 or negative; two infinite arguments of
logaddexp get 0 if negative, a half each if positive. Functions that are constant almost everywhere (sign, floor,
comparisons…) give plain arrays.

Where a slope is such a convention it is taken for constant: |x|**2 has the second derivative 0 at 0, x**2 has 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..primitive import differentiate, primitive
from ..variable import NONDIFFERENTIABLE, Variable, implements, nondifferentiable, strip

_function: Any


def keep(g, mask):
    """np.where(mask, g, 0), where one broadcasts to the other.

    By bits: the branches of np.where make it 10 times slower on a mask without pattern.
    """
    if type(g) is not np.ndarray or not g.ndim or g.itemsize not in (4, 8):
        return np.where(mask, g, 0)
    dtype = np.dtype(f"i{g.itemsize}")
    bits = np.multiply(mask, dtype.type(-1))
    fits = bits.shape == g.shape or (bits.ndim == g.ndim and bits.size > g.size > 0)
    return np.bitwise_and(bits, g.view(dtype), out=bits if fits else None).view(g.dtype)


def _constant(out, *args, **kwargs):
    """The rule of an argument on which the result depends in steps only."""
    return np.zeros_like


def _unchanged(g):
    """The pullback of a slope of 1."""
    return g


def summed(g, shape):
    """The sum over the axes along which an argument of this shape was repeated.

    The sweep would take it too. To do so first is quicker where all that follows can be done on the smaller array.
    """
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    axes = tuple(i for i, n in enumerate(g.shape) if i < extra or n != shape[i - extra])
    return np.reshape(np.sum(g, axis=axes), shape)


def _subtrahend(out, x, y):
    shape = y.shape
    return lambda g: -summed(g, shape)


differentiate(np.add, lambda out, x, y: _unchanged, lambda out, x, y: _unchanged)
differentiate(np.subtract, lambda out, x, y: _unchanged, _subtrahend)
differentiate(np.multiply, lambda out, x, y: lambda g: g * y, lambda out, x, y: lambda g: g * x)
differentiate(np.divide, lambda out, x, y: lambda g: g / y, lambda out, x, y: lambda g: summed(g * out, y.shape) / -y)
differentiate(np.negative, lambda out, x: lambda g: -g)
differentiate(np.positive, lambda out, x: _unchanged)
differentiate(np.conjugate, lambda out, x: _unchanged)
differentiate(np.remainder, lambda out, x, y: _unchanged, lambda out, x, y: lambda g: -g * np.floor_divide(x, y))
differentiate(np.fmod, lambda out, x, y: _unchanged, lambda out, x, y: lambda g: -g * np.rint((x - out) / y))

# Powers and roots.


def _as_result(x, out):
    """x in the result's dtype: the logarithm of an int8 has three digits, and 0 − 1 is no −1 among unsigned ones."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return x if x.dtype == out.dtype else x.astype(out.dtype)


def _power_base(out, x, y):
    if type(y) in (int, float, bool):
        if y == 2:
            return lambda g: g * (2 * x)
        if y == 0:
            return np.zeros_like
        if y == -1:
            return lambda g: -g * out * out
        if y == 0.5:
            return lambda g: g * (0.5 / out)
        return lambda g: g * (y * x ** (y - 1))
    y = _as_result(y, out)
    return lambda g: g * (y * np.power(x, np.where((x == 0) & (y == 0), 1, y - 1)))


def _power_exponent(out, x, y):
    if type(x) in (int, float, bool):  # math.log gives a Python float, which leaves float32 what it is
        slope = math.log(x) if x > 0 else 0.0
        return lambda g: g * (slope * out)
    x = _as_result(x, out)
    return lambda g: g * (out * np.log(np.where(x > 0, x, 1)))


differentiate(np.power, _power_base, _power_exponent)
differentiate(np.float_power, _power_base, _power_exponent)
differentiate(np.square, lambda out, x: lambda g: g * (2 * x))
differentiate(np.sqrt, lambda out, x: lambda g: g / (2 * out))
differentiate(np.cbrt, lambda out, x: lambda g: g / (3 * out * out))
differentiate(np.reciprocal, lambda out, x: lambda g: -g * out * out)

# Exponentials and logarithms.

differentiate(np.exp, lambda out, x: lambda g: g * out)
differentiate(np.exp2, lambda out, x: lambda g: g * (math.log(2) * out))
differentiate(np.expm1, lambda out, x: lambda g: g * np.exp(x))  # out + 1 cancels
differentiate(np.log, lambda out, x: lambda g: g / x)
differentiate(np.log2, lambda out, x: lambda g: g / (math.log(2) * x))
differentiate(np.log10, lambda out, x: lambda g: g / (math.log(10) * x))
differentiate(np.log1p, lambda out, x: lambda g: g / (1 + x))


def _weight(exp, x, y, out):
    """The share of x in exp(x) + exp(y), and its limit where the sum is infinite or nothing.

    Divided by the sum, since exp(x - out) alone is off by out's rounding error.
    """
    out = strip(out)  # the share doesn't depend on the number that both are shifted by
    infinite = np.isinf(out)
    if np.any(infinite):
        limit = ((out > 0) & (x == out)) / np.add(1, x == y, dtype=out.dtype)
        x, y, out = (np.where(infinite, 0, z if hasattr(z, "dtype") else np.asarray(z, out.dtype)) for z in (x, y, out))
        return np.where(infinite, limit, _weight(exp, x, y, out))
    part = exp(x - out)
    return part / (part + exp(y - out))


for _function, _exp in ((np.logaddexp, np.exp), (np.logaddexp2, np.exp2)):
    differentiate(
        _function,
        lambda out, x, y, exp=_exp: lambda g: g * _weight(exp, x, y, out),
        lambda out, x, y, exp=_exp: lambda g: g * _weight(exp, y, x, out),
    )

# Trigonometric and hyperbolic functions.


@primitive
def tanh_slope(x, tanh):
    """1 - tanh(x)², from exponentials where the difference cancels; `tanh` is known already, and not an argument."""
    slope, flat = np.asarray(1 - tanh * tanh), _is_flat(tanh)
    if flat.any():
        u = np.exp(-2 * np.abs(np.asarray(x)[flat]))
        slope[flat] = 4 * u / ((1 + u) * (1 + u))
    return slope


tanh_slope.defvjp(lambda out, x, tanh: lambda g: g * (-2 * np.tanh(x) * out))


def _is_flat(tanh):
    """Where the slope is so small that the rounding error of tanh² is more than 20 times that of the slope."""
    return (tanh > 0.975) | (tanh < -0.975)


def _tanh(out, x):
    plain = strip(out)
    if type(x) is Variable or _is_flat(plain).any():
        slope = tanh_slope(x, plain)  # now, so that neither x nor the result is kept
        return lambda g: g * slope
    return lambda g: g * (1 - out * out)


# Products of sums keep precision near ±1, hypot keeps large x from overflow.

differentiate(np.sin, lambda out, x: lambda g: g * np.cos(x))
differentiate(np.cos, lambda out, x: lambda g: -g * np.sin(x))
differentiate(np.tan, lambda out, x: lambda g: g * (1 + out * out))
differentiate(np.arcsin, lambda out, x: lambda g: g / np.sqrt((1 - x) * (1 + x)))
differentiate(np.arccos, lambda out, x: lambda g: -g / np.sqrt((1 - x) * (1 + x)))
differentiate(np.sinh, lambda out, x: lambda g: g * np.cosh(x))
differentiate(np.cosh, lambda out, x: lambda g: g * np.sinh(x))
differentiate(np.tanh, _tanh)
differentiate(np.arcsinh, lambda out, x: lambda g: g / np.hypot(x, 1))
differentiate(np.arccosh, lambda out, x: lambda g: g / (np.sqrt(x - 1) * np.sqrt(x + 1)))
differentiate(np.arctanh, lambda out, x: lambda g: g / ((1 - x) * (1 + x)))
for _function in (np.deg2rad, np.radians):
    differentiate(_function, lambda out, x: lambda g: g * (math.pi / 180))
for _function in (np.rad2deg, np.degrees):
    differentiate(_function, lambda out, x: lambda g: g * (180 / math.pi))


def _arctan(out, x):
    radius = np.hypot(x, 1)
    return lambda g: g / radius / radius


differentiate(np.arctan, _arctan)


def _nonzero(radius):
    return np.where(radius == 0, 1, radius)


def _angle(x, y):
    """The slope of arctan2(x, y) in x."""
    radius = _nonzero(np.hypot(x, y))
    return y / radius / radius


differentiate(np.arctan2, lambda out, x, y: lambda g: g * _angle(x, y), lambda out, x, y: lambda g: -g * _angle(y, x))

differentiate(
    np.hypot,
    lambda out, x, y: lambda g: g * (x / _nonzero(out)),
    lambda out, x, y: lambda g: g * (y / _nonzero(out)),
)


@primitive
def sinc_derivative(x, order):
    """The derivative of that order of sin(πx) / (πx): its power series near 0, elsewhere a recurrence over orders.

    With z = πx and f = sin(z)/z: z·f⁽ⁿ⁾ + n·f⁽ⁿ⁻¹⁾ = sin(z + nπ/2), from differentiating z·f = sin z n times.
    """
    z = math.pi * np.asarray(x)
    near = np.abs(z) < 1 + order  # the recurrence multiplies rounding errors by n/z
    far = np.where(near, 1, z)
    recurrence = np.sin(far) / far
    for n in range(1, order + 1):
        recurrence = (np.sin(far + n * math.pi / 2) - n * recurrence) / far
    z = np.where(near, z, 0)
    first = (order + 1) // 2
    series = np.zeros_like(z)
    for k in reversed(range(first, first + 16 + 2 * order)):
        series = series * (z * z) * (1 / ((2 * k + 2 - order) * (2 * k + 1 - order))) * -1 + 1 / (2 * k + 1)
    lead = (-1) ** first * (z if order % 2 else 1)
    return math.pi**order * np.where(near, lead * series, recurrence)


sinc_derivative.defvjp(lambda out, x, order: lambda g: g * sinc_derivative(x, order + 1))
differentiate(np.sinc, lambda out, x: lambda g: g * sinc_derivative(x, 1))


@primitive
def bessel_i(x, order):
    """The modified Bessel function I of integer order: the mean of exp(x·cos θ)·cos(order·θ) over half a turn.

    The midpoint rule converges exponentially for a periodic integrand (Trefethen & Weideman 2014, section 5).
    """
    x = np.asarray(x)
    nodes = 32 + int(5 * math.sqrt(np.max(np.abs(x), initial=0, where=np.isfinite(x))))
    angles = ((np.arange(nodes) + 0.5) * (math.pi / nodes)).astype(x.dtype)
    return np.mean(np.exp(x[..., None] * np.cos(angles)) * np.cos(order * angles), axis=-1)


@bessel_i.defvjp
def _bessel_i(out, x, order):
    return lambda g: g * 0.5 * (bessel_i(x, order - 1) + bessel_i(x, order + 1))


differentiate(np.i0, lambda out, x: lambda g: g * bessel_i(x, 1))

# Magnitudes, signs and parts.


def _ldexp(out, x, n):
    n = np.array(n)  # a copy: the caller's may change before the sweep
    return lambda g: np.ldexp(g, n)


differentiate(np.absolute, lambda out, x: lambda g: g * np.sign(x))
differentiate(np.fabs, lambda out, x: lambda g: g * np.sign(x))
differentiate(np.copysign, lambda out, x, y: lambda g: g * (np.sign(x) * np.sign(out)), _constant)
differentiate(np.heaviside, _constant, lambda out, x, y: lambda g: g * np.equal(x, 0))
differentiate(np.ldexp, _ldexp)
implements(np.real, np.real_if_close)(lambda val: val)


@primitive
def made_finite(x, nan, posinf, neginf):
    """x with other numbers in place of NaN and of infinities, np.nan_to_num."""
    return np.nan_to_num(x, True, nan, posinf, neginf)


@made_finite.defvjp
def _made_finite(out, x, nan, posinf, neginf):
    finite = np.isfinite(x)
    return lambda g: keep(g, finite)


@implements(np.nan_to_num)
def _nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    if not copy:
        raise TypeError("np.nan_to_num with copy=False would change a Variable in place: leave it out, use the result")
    return made_finite(x, nan, posinf, neginf)


@primitive
def fraction(x):
    """The part of x after the point, np.modf(x)[0]."""
    return np.modf(x)[0]


fraction.defvjp(lambda out, x: _unchanged)
implements(np.modf)(lambda x: (fraction(x), np.modf(strip(x))[1]))


@primitive
def mantissa(x):
    """x divided by the power of two that brings it to [1/2, 1), np.frexp(x)[0]."""
    return np.frexp(x)[0]


@mantissa.defvjp
def _mantissa(out, x):
    exponent = np.frexp(strip(x))[1]
    return lambda g: np.ldexp(g, -exponent)


implements(np.frexp)(lambda x: (mantissa(x), np.frexp(strip(x))[1]))
implements(np.divmod)(lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)))

# Choices between arguments.


def _share(wins, ties):
    """The pullback of an argument that gets the gradient where it wins, and half of it where the two are equal."""
    if not ties.any():
        return lambda g: keep(g, wins)
    return lambda g: g * (np.multiply(ties, 0.5, dtype=g.dtype) + wins)


def _known(x, y):
    """Where x is a number and y is not: fmax and fmin then give x."""
    return np.isnan(y) & ~np.isnan(x)


differentiate(np.maximum, lambda out, x, y: _share(x > y, x == y), lambda out, x, y: _share(y > x, x == y))
differentiate(np.minimum, lambda out, x, y: _share(x < y, x == y), lambda out, x, y: _share(y < x, x == y))
differentiate(
    np.fmax,
    lambda out, x, y: _share((x > y) | _known(x, y), x == y),
    lambda out, x, y: _share((y > x) | _known(y, x), x == y),
)
differentiate(
    np.fmin,
    lambda out, x, y: _share((x < y) | _known(x, y), x == y),
    lambda out, x, y: _share((y < x) | _known(y, x), x == y),
)


@primitive
def where(condition, x, y):
    """x where the condition holds, y elsewhere."""
    return np.where(condition, x, y)


where.defvjp(
    None,
    lambda out, condition, x, y: lambda g: keep(g, condition),
    lambda out, condition, x, y: lambda g: keep(g, ~condition),
)


@implements(np.where)
def _where(condition, *choices):
    if not choices:
        return np.where(strip(condition))
    return where(np.array(strip(condition), bool), *choices)  # a copy: the caller's may change before the sweep


@primitive
def clamp(x, low, high):
    """x between two bounds, None for no bound: np.clip(x, low, high)."""
    return np.clip(x, low, high)


def _within(x, low, high):
    within = True if low is None else x >= low
    return within if high is None else within & (x <= high)


def _clamp_x(out, x, low, high):
    within = _within(x, low, high)
    return lambda g: keep(g, within)


def _clamp_low(out, x, low, high):
    binds = x < low if high is None else (x < low) & (low <= high)
    return lambda g: keep(g, binds)


def _clamp_high(out, x, low, high):
    binds = x > high if low is None else (x > high) | (low > high)  # NumPy's choice if the bounds are crossed
    return lambda g: keep(g, binds)


clamp.defvjp(_clamp_x, _clamp_low, _clamp_high)


@implements(np.clip)
def _clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None):
    return clamp(a, min if a_min is None else a_min, max if a_max is None else a_max)


# The outer forms of functions of two arguments: every element of x with every element of y.


def _outer(ufunc):
    def outer(x, y):
        x = x if hasattr(x, "shape") else np.asarray(x)
        return ufunc(np.reshape(x, x.shape + (1,) * np.ndim(y)), y)

    return outer


for _function in (
    np.add, np.subtract, np.multiply, np.divide, np.power, np.float_power, np.remainder, np.fmod, np.maximum,
    np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot, np.arctan2, np.copysign,
):  # fmt: skip
    implements((_function, "outer"))(_outer(_function))

nondifferentiable(
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.isfinite, np.isnan, np.isinf,
    np.isposinf, np.isneginf, np.sign, np.signbit, np.floor, np.ceil, np.rint, np.trunc, np.fix, np.round, np.around,
    np.floor_divide, np.spacing, np.logical_and, np.logical_or, np.logical_not, np.logical_xor, np.isreal, np.iscomplex,
    np.isrealobj, np.iscomplexobj, np.imag, np.isclose, np.allclose, np.array_equal, np.array_equiv, np.shape, np.ndim,
    np.size, np.result_type, np.can_cast, np.min_scalar_type, np.common_type, np.may_share_memory, np.shares_memory,
    np.zeros_like, np.ones_like, np.empty_like, np.array_repr, np.array_str, np.array2string,
)  # fmt: skip
nondifferentiable(*((f, "outer") for f in NONDIFFERENTIABLE if isinstance(f, np.ufunc) and f.nin == 2))
