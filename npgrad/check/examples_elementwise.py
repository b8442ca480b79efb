"""Examples of elementwise functions, reductions, sorting, statistics and polynomials.

What is not to be differentiated is given by keyword, or is of integers or booleans. Numbers keep clear of kinks: those
have tests of their own.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..rules.elementwise import bessel_i, clamp, fraction, mantissa, sinc_derivative, tanh_slope, where
from ..rules.reductions import deviation, product, recurrence, running_product, variance
from ..rules.sorting import permuted, quantile
from ..rules.statistics import binned, convolution
from ..variable import strip
from .examples import example, normal, positive

X, Y, P, Q = normal(3, 4), normal(3, 4, seed=1), positive(3, 4), positive(3, 4, seed=1)
ROW, COLUMN, LINE, CUBE = normal(4), normal(3, 1), normal(7), normal(2, 3, 4)
SMALL = np.tanh(X) * 0.9
MASK = X > -1
ZEROS = np.where(np.abs(X) < 0.6, 0.0, X)  # several zeros, in some rows more than one
HOLES = np.where(np.abs(X) < 0.6, np.nan, X)

_f: Any
_u: Any

# Elementwise.

for _f in (
    np.negative, np.positive, np.conjugate, np.square, np.exp, np.exp2, np.expm1, np.sin, np.cos, np.tan, np.sinh,
    np.cosh, np.tanh, np.arcsinh, np.arctan, np.deg2rad, np.radians, np.rad2deg, np.degrees, np.cbrt, np.sinc, np.i0,
    np.absolute, np.fabs, np.reciprocal, np.nan_to_num, np.real, np.real_if_close, fraction, mantissa,
):  # fmt: skip
    example(_f, X)
    example(_f, normal())
for _f in (np.sqrt, np.log, np.log2, np.log10, np.log1p):
    example(_f, P)
for _f in (np.arcsin, np.arccos, np.arctanh):
    example(_f, SMALL)
example(np.arccosh, P + 1)
example(np.exp, normal(0, 3))
for _f in (
    np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot,
    np.arctan2, np.copysign, operator.add, operator.sub, operator.mul,
):  # fmt: skip
    example(_f, X, Y)
    example(_f, X, ROW)
    example(_f, COLUMN, ROW)
for _f in (np.divide, np.remainder, np.fmod, operator.truediv, operator.mod):
    example(_f, X, P)
    example(_f, COLUMN, positive(4))
for _f in (np.power, np.float_power, operator.pow):
    example(_f, P, Y)
    example(_f, positive(3, 1), ROW)
    example(_f, X, 2)
    example(_f, X, 3)
    example(_f, X, -1)
    example(_f, X, 0)
    example(_f, X, np.array([0, 1, 2, 3]))
    example(_f, 2, X)
for _u in (
    np.add, np.subtract, np.multiply, np.divide, np.power, np.float_power, np.remainder, np.fmod, np.maximum,
    np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot, np.arctan2, np.copysign,
):  # fmt: skip
    example(_u.outer, COLUMN**2, positive(4))
example(np.heaviside, X, Y)
example(np.ldexp, X, np.array([1, -2, 0, 3]))
example(np.modf, X)
example(np.frexp, X)
example(np.divmod, X, P)
example(np.where, MASK, X, Y)
example(np.where, MASK, X, ROW)
example(where, MASK, COLUMN, 1)
example(np.clip, X, a_min=-0.5, a_max=0.7)
example(np.clip, X, a_min=0.1, a_max=None)
example(np.clip, X, a_min=None, a_max=0.1)
example(np.clip, X, Y, Y + 1)
example(clamp, X, ROW, None)
example(sinc_derivative, X, 2)
example(sinc_derivative, X * 3, 5)
example(bessel_i, X, 2)


def _slope_of_tanh(x: Any) -> Any:
    return tanh_slope(x, np.tanh(strip(x)))


for _x in (normal(), X * 3, CUBE):
    example(_slope_of_tanh, _x)

# Reductions.

for _f in (np.sum, np.mean, np.prod, np.max, np.min, np.amax, np.amin, np.var, np.std):
    example(_f, X)
    example(_f, X, axis=0)
    example(_f, X, axis=-1, keepdims=True)
    example(_f, CUBE, axis=(0, -1))
    example(_f, CUBE, axis=(2, 0), keepdims=True)
    example(_f, X, keepdims=True)
for _f in (np.sum, np.mean, np.prod, np.var, np.std):
    example(_f, X, axis=1, where=MASK)
    example(_f, X, axis=0, dtype=np.float64)
for _f in (np.sum, np.prod, np.max, np.min):
    example(_f, X, axis=1, initial=0.1)
    example(_f, X, where=MASK, initial=0.1)
for _f in (np.sum, np.mean, np.max, np.min, np.prod):
    example(_f, X, 1)
    example(_f, CUBE, (0, 1))
example(np.sum, X, axis=())
example(np.sum, normal(0, 3), axis=0)
example(np.prod, normal(0, 3), axis=0)
example(np.sum, normal())
for _f in (np.var, np.std):
    example(_f, X, axis=1, ddof=1)
    example(_f, X, axis=0, mean=np.mean(Y, axis=0, keepdims=True))
    example(_f, X, axis=1, ddof=1, where=MASK, keepdims=True)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        example(_f, X, axis=1, correction=1)
example(np.prod, ZEROS)
example(np.prod, ZEROS, axis=1)
for _f in (np.cumsum, np.cumprod):
    example(_f, X)
    example(_f, X, axis=0)
    example(_f, CUBE, axis=1)
    example(_f, ZEROS, axis=-1)
if hasattr(np, "cumulative_sum"):
    for _f in (np.cumulative_sum, np.cumulative_prod):
        example(_f, LINE)
        example(_f, X, axis=0, include_initial=True)
example(np.ptp, X)
example(np.ptp, X, axis=1, keepdims=True)
for _u in (np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot):
    example(_u.reduce, X)
    example(_u.reduce, CUBE, axis=1, keepdims=True)
    example(_u.reduce, X, axis=-1, where=MASK, initial=0.1)
for _u in (np.add, np.multiply, np.maximum, np.minimum):
    example(_u.accumulate, X)
    example(_u.accumulate, CUBE, axis=1)
example(variance, X, 1, 0, False)
example(deviation, X, 1, 1, True)
example(product, X)
example(running_product, ZEROS)
example(recurrence, X, ZEROS)

# Sorting and choosing.

example(np.sort, X)
example(np.sort, X, axis=0)
example(np.sort, CUBE, axis=None)
example(np.partition, X, 2)
example(np.partition, X, (1, 2), axis=0)
example(permuted, LINE, np.array([3, 1, 0, 2, 6, 5, 4]), 0)
example(permuted, X, np.array([[2, 0, 1, 2], [0, 1, 2, 0], [1, 2, 0, 1]]), 0)
example(permuted, normal(1), np.array([0]), 0)
example(np.take_along_axis, X, np.array([[0, 3], [2, 2], [1, 0]]), axis=1)
example(np.take_along_axis, X, np.array([5, 0, 5]), axis=None)
for _f in (np.median, np.nanmedian):
    example(_f, X)
    example(_f, X, axis=0)
    example(_f, CUBE, axis=(0, 2), keepdims=True)
for _f, _scale in ((np.quantile, 1), (np.percentile, 100), (np.nanquantile, 1), (np.nanpercentile, 100)):
    example(_f, X, q=0.3 * _scale)
    example(_f, X, q=np.array([0.1, 0.6]) * _scale, axis=0)
    example(_f, CUBE, q=np.array([[0.1, 0.6], [0.9, 0.0]]) * _scale, axis=1, keepdims=True)
for _method in (
    "inverted_cdf",
    "averaged_inverted_cdf",
    "hazen",
    "weibull",
    "median_unbiased",
    "lower",
    "midpoint",
    "nearest",
):
    example(np.quantile, X, q=0.37, axis=1, method=_method)
example(quantile, LINE, np.median, np.array([3]))
example(quantile, normal(1), np.median, np.array([0]))
example(quantile, normal(3), np.median, np.array([1]))
example(np.select, [X > 0.5, X > -0.5], [X, Y], default=0.25)
example(np.choose, np.array([0, 1, 0, 1]), [X, Y])
example(np.choose, np.array([5, -1, 0, 1]), [X, Y], mode="wrap")
example(np.piecewise, X, [X < -0.5, X > 0.5], [np.sin, 2, np.exp])

# Statistics and sampled functions.

example(np.average, X)
example(np.average, X, 1, Q)
example(np.average, CUBE, (2, 0), positive(4, 2))
example(np.average, X, axis=0, weights=positive(3), keepdims=True)
for _f in (np.cov, np.corrcoef):
    example(_f, X)
    example(_f, LINE)
    example(_f, X, rowvar=False)
    example(_f, ROW, Y)
example(np.cov, X, bias=True)
example(np.cov, X, fweights=np.array([1, 2, 1, 3]), aweights=positive(4))
for _f in (np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanmedian):
    example(_f, X, axis=0)
    example(_f, HOLES)
    example(_f, HOLES, axis=1, keepdims=True)
for _f in (np.nancumsum, np.nancumprod):
    example(_f, HOLES)
    example(_f, HOLES, axis=0)
example(np.nanquantile, HOLES, q=np.array([0.2, 0.7]), axis=1)
example(np.diff, X)
example(np.diff, X, n=2, axis=0)
example(np.diff, X, n=1, axis=1, prepend=0.5, append=COLUMN)
example(np.ediff1d, X)
example(np.ediff1d, LINE, ROW, 0)
example(np.trapezoid, X)
example(np.trapezoid, X, ROW)
example(np.trapezoid, X, Y, axis=0)
example(np.trapezoid, CUBE, axis=1, dx=0.5)
for _order in (1, 2):
    example(np.gradient, X, edge_order=_order)
    example(np.gradient, LINE, 2, edge_order=_order)
    example(np.gradient, X, np.cumsum(positive(4)), axis=1, edge_order=_order)
    example(np.gradient, CUBE, 2, 3, axis=(1, 2), edge_order=_order)
for _f in (np.convolve, np.correlate):
    for _mode in ("full", "same", "valid"):
        example(_f, LINE, normal(3), mode=_mode)
        example(_f, ROW, LINE, mode=_mode)
example(convolution, LINE, ROW)
example(np.interp, np.array([0.3, 1.7, 1.2, -5.0, 9.0]), np.arange(4), normal(4))
example(np.interp, np.array([[0.3], [1.7]]), np.array([0.0, 0.9, 2.1, 3.0]), ROW, left=0.5, right=1.5)
example(np.interp, np.array([0.3, 5.7, -1.2]), np.array([0.0, 0.9, 2.1, 3.5]), ROW, period=4.0)
example(np.unwrap, np.array([0.0, 0.3, 6.5, 7.0, 13.0]))
example(np.bincount, np.array([0, 2, 2, 1]), ROW)
example(binned, np.array([0, 2, 2, 1]), ROW, 5)
for _f in (np.linspace, np.geomspace):
    example(_f, positive(), positive(seed=1) + 2, num=5)
    example(_f, positive(3), positive(3, seed=1) + 2, num=4, endpoint=False, axis=1)
example(np.logspace, normal(), normal(seed=1), num=5, base=2.0)
example(np.logspace, normal(3), normal(3, seed=1), num=4)
example(np.logspace, normal(2, 1), normal(3), num=3, endpoint=False, axis=-1)

# Polynomials.

example(np.polyval, ROW, X)
example(np.polyadd, ROW, LINE)
example(np.polysub, LINE, ROW)
example(np.polymul, ROW, LINE)
example(np.polyder, LINE, m=2)
example(np.polyder, ROW)
example(np.polyint, LINE, m=2, k=[1.0, 2.0])
example(np.vander, ROW)
example(np.vander, ROW, 3, increasing=True)
