"""Elementwise functions: one line each.

A broadcast argument's gradient is summed to its shape by the engine, so a rule just multiplies by the local slope.
Conventions where there is none: |x| and sign-like functions have slope 0 at 0; maximum and minimum split evenly
between equal arguments.
"""

from __future__ import annotations

import numpy as np

from ..primitive import differentiate
from ..variable import implements, nondifferentiable

differentiate(np.add, lambda out, x, y: lambda g: g, lambda out, x, y: lambda g: g)
differentiate(np.subtract, lambda out, x, y: lambda g: g, lambda out, x, y: lambda g: -g)
differentiate(np.multiply, lambda out, x, y: lambda g: g * y, lambda out, x, y: lambda g: g * x)
differentiate(np.divide, lambda out, x, y: lambda g: g / y, lambda out, x, y: lambda g: -g * out / y)
differentiate(np.negative, lambda out, x: lambda g: -g)
differentiate(np.positive, lambda out, x: lambda g: g)


def _power_base(out, x, y):
    slope = y * np.power(x, np.where(y == 0, 1, y - 1))  # x**0 is constant, at x = 0 too
    return lambda g: g * slope


def _power_exponent(out, x, y):
    safe = np.where(x > 0, x, 1)  # 0**y is constant for y > 0; a negative base has no slope in its exponent
    return lambda g: g * (out * np.log(safe))


differentiate(np.power, _power_base, _power_exponent)
differentiate(np.square, lambda out, x: lambda g: g * (2 * x))
differentiate(np.sqrt, lambda out, x: lambda g: g / (2 * out))
differentiate(np.reciprocal, lambda out, x: lambda g: -g * out * out)

differentiate(np.exp, lambda out, x: lambda g: g * out)
differentiate(np.expm1, lambda out, x: lambda g: g * (out + 1))
differentiate(np.log, lambda out, x: lambda g: g / x)
differentiate(np.log1p, lambda out, x: lambda g: g / (1 + x))
differentiate(np.sin, lambda out, x: lambda g: g * np.cos(x))
differentiate(np.cos, lambda out, x: lambda g: -g * np.sin(x))
differentiate(np.tanh, lambda out, x: lambda g: g * (1 - out * out))
differentiate(np.abs, lambda out, x: lambda g: g * np.sign(x))


def _share(x, y, out, g):
    """The part of g that goes to x when out is the larger (or smaller) of x and y: half when they are equal."""
    return g * np.where(x == y, np.asarray(0.5, out.dtype), np.asarray(x == out, out.dtype))


differentiate(np.maximum, lambda out, x, y: lambda g: _share(x, y, out, g), lambda out, x, y: lambda g: _share(y, x, out, g))
differentiate(np.minimum, lambda out, x, y: lambda g: _share(x, y, out, g), lambda out, x, y: lambda g: _share(y, x, out, g))

differentiate(
    np.where,
    None,
    lambda out, condition, x, y: lambda g: np.where(condition, g, np.zeros((), g.dtype)),
    lambda out, condition, x, y: lambda g: np.where(condition, np.zeros((), g.dtype), g),
)

nondifferentiable(
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.isfinite, np.isnan, np.isinf,
    np.sign, np.signbit, np.floor, np.ceil, np.rint, np.trunc, np.floor_divide, np.logical_and, np.logical_or, np.logical_not,
    np.shape, np.ndim, np.size, np.result_type, np.argmax, np.argmin, np.argsort, np.allclose, np.isclose, np.array_equal,
    np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.all, np.any, np.array_repr, np.array_str, np.array2string,
)  # fmt: skip
