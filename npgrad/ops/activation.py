"""Activations: the logistic sigmoid, SiLU, GELU, and SwiGLU, the gated product of a decoder's feed-forward layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..fused import fused
from ..primitive import primitive
from .arrays import as_floats, as_same_floats, half_in_single


@primitive
@half_in_single
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(−x)) elementwise, to full relative precision at both ends and without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    with np.errstate(over="ignore"):  # exp(1000) is inf, whose reciprocal is the right 0
        return 1 / (1 + np.exp(-as_floats(x)))


sigmoid.defvjp(lambda out, x: lambda g: g * (out * sigmoid(-x)))


_FAR = 12_000.0  # sigmoid(-12000) is 0 in every precision: infinities are cut off there, since 0 * inf is NaN


@primitive
@half_in_single
def silu(x: Any) -> Any:
    """x · sigmoid(x) elementwise, also known as swish.

    x is a float array of any shape; the result has its shape and dtype. Source: Elfwing, Uchibe & Doya,
    "Sigmoid-Weighted Linear Units" (arXiv:1702.03118), equation 5.

    >>> silu(np.array([-1000.0, 0.0, 1000.0]))
    array([  -0.,    0., 1000.])
    """
    x = as_floats(x)
    return np.maximum(x, -_FAR) * sigmoid(x)


@silu.defvjp
def _(out, x):
    def pullback(g):
        return g * (sigmoid(x) * (1 + np.maximum(np.minimum(x, _FAR), -_FAR) * sigmoid(-x)))  # 1 − sigmoid(x) cancels

    return pullback


@half_in_single
def swiglu(gate: Any, up: Any) -> Any:
    """silu(gate) · up elementwise: the gated product inside a decoder's feed-forward layer.

    gate and up are float arrays of one shape, or shapes that broadcast. Source: Shazeer, "GLU Variants Improve
    Transformer" (arXiv:2002.05202), equation 6.

    >>> swiglu(np.array([0.0, 1000.0]), np.array([5.0, 5.0]))
    array([   0., 5000.])
    """
    return silu(gate) * as_floats(up)


@fused(swiglu)  # type: ignore[no-redef]
@half_in_single
def swiglu(gate, up):
    gate, up = as_same_floats(gate, up)
    s = np.empty(gate.shape, gate.dtype)  # sigmoid(gate)
    np.negative(gate, out=s)
    with np.errstate(over="ignore"):  # exp(1000) is inf, whose reciprocal is the right 0
        np.exp(s, out=s)
    s += 1
    np.divide(1, s, out=s)
    if not gate.min(initial=0) > -_FAR:
        gate = np.maximum(gate, -_FAR)
    y = np.asarray(gate * s)  # silu(gate)
    out = y * up

    def pullback(g):
        slope = np.asarray(1 - s)
        slope *= y if y.max(initial=0) < _FAR else np.minimum(y, _FAR)
        slope += s  # of silu
        if g.shape != s.shape or up.shape != s.shape:  # one was broadcast
            return slope * up * g, y * g
        slope *= up
        slope *= g
        return slope, y * g

    return out, pullback


@primitive
@half_in_single
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """x · Φ(x) elementwise, Φ the standard normal distribution; with approximate="tanh" the usual approximation.

    The approximation is x · (1 + tanh(sqrt(2/π)·(x + 0.044715·x³))) / 2. x is a float array of any shape; the result
    has its shape and dtype. ValueError for another kind of approximation. Source: Hendrycks & Gimpel, "Gaussian Error
    Linear Units" (arXiv:1606.08415), section 2.

    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(6)
    array([-0.158655,  0.      ,  0.841345])
    """
    x = as_floats(x)
    return np.maximum(x, -40.0) * (normal_cdf(x) if _is_exact(approximate) else sigmoid(_tanh_argument(x)))


@gelu.defvjp
def _(out, x, *, approximate="none"):
    if _is_exact(approximate):
        return lambda g: g * (normal_cdf(x) + _clipped(x) * _normal_density(x))

    def pullback(g):
        u, clipped = _tanh_argument(x), _clipped(x)
        slope = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * (clipped * clipped))
        return g * (sigmoid(u) * (1 + clipped * slope * sigmoid(-u)))

    return pullback


_TANH_SCALE, _TANH_CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715


def _is_exact(approximate):
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", not {approximate!r}')
    return approximate == "none"


def _tanh_argument(x):
    """u of the approximation, doubled: (1 + tanh(u)) / 2 = sigmoid(2u)."""
    x = _clipped(x)
    return _TANH_SCALE * (x + _TANH_CUBIC * (x * x * x))


def _clipped(x):
    """x within ±40, beyond which either form is 0 or x to all digits: its powers stay finite."""
    return np.maximum(np.minimum(x, 40.0), -40.0)


def _normal_density(x):
    x = _clipped(x)
    return np.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


@primitive
@half_in_single
def normal_cdf(x):
    """Φ(x), the standard normal distribution function, to full relative precision in both tails."""
    distance = np.minimum(np.abs(x), 40.0)
    t = (distance - 4) / (distance + 4)
    tail = np.full_like(t, _MILLS[-1])
    for coefficient in _MILLS[-2::-1]:
        tail *= t
        tail += coefficient
    tail *= np.exp(distance * distance * -0.5) / (distance + 4)
    return np.where(x < 0, tail, 1 - tail)


normal_cdf.defvjp(lambda out, x: lambda g: g * _normal_density(x))

# For x >= 0, (x + 4)·exp(x²/2)·Φ(−x) as a polynomial in t = (x − 4)/(x + 4), which is in [−1, 1): interpolated at
# Chebyshev points in 40 digits, its error is below 2e-16 of the value.
_MILLS = (
    0.75528513041575145, -0.60789664197189296, 0.38713740074222660, -0.18652185795957872,
    6.0396574890360918e-2, -7.5401889688916190e-3, -3.4796923566515026e-3, 1.6308184854735857e-3,
    1.3334420916014779e-4, -2.3109513778728934e-4, -1.9076760307190981e-6, 3.5145602359044515e-5,
    7.1460215312674618e-7, -5.9228937775419281e-6, -6.2495510775651779e-7, 1.0269840701431929e-6,
    2.6473372819798679e-7, -1.6223163208535671e-7, -7.8783603426936378e-8, 1.9569608939974049e-8,
    1.6067386957329402e-8, -1.2772351432957720e-9, -1.6886576966767349e-9,
)  # fmt: skip
