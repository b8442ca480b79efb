"""Reductions and running totals: sum, mean, var, max, prod, cumsum and their kin, with NumPy's keywords.

A reduction's pullback gives the cotangent back its lost axes and spreads it over them. Conventions: max and min split
evenly among ties (a tie with `initial` counts as one), and give NaN to NaN; std of equal numbers has slope 0, and that
is taken for constant, so that std(x)**2 has second derivative 0 there; prod and cumprod are exact with any number of
zeros, since their pullbacks multiply and never divide.
A `dtype` that is not of floats is refused (the result could not be differentiated).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..primitive import differentiate, primitive
from ..variable import Variable, implements, nondifferentiable, strip
from .elementwise import keep
from .indexing import read, scatter
from .shaping import astype

_unset = np._NoValue


def as_array(x):
    """x itself if it is an array or a Variable, an array of it otherwise."""
    return x if isinstance(x, (Variable, np.ndarray)) else np.asarray(x)


def in_dtype(x, dtype):
    """x in the dtype of floats that was asked for, if any; TypeError for any other dtype."""
    if dtype is None:
        return x
    if np.dtype(dtype).kind != "f":
        raise TypeError(f"a result of {np.dtype(dtype)} can't be differentiated: ask for floats, or convert x.value")
    return astype(x, dtype)


def kept_shape(shape, axis):
    """The shape that keepdims=True would have given."""
    if axis is None:
        return (1,) * len(shape)
    axes = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))} if shape else ()
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count(shape, axis):
    """How many elements of an array of this shape go into each result."""
    return math.prod(n for n, k in zip(shape, kept_shape(shape, axis)) if k == 1)


def spread(g, kept, shape):
    """g over the axes that were reduced. np.broadcast_to, but without its 3 µs for a small array."""
    if type(g) is Variable or math.prod(shape) > 4096:
        return np.broadcast_to(np.reshape(g, kept), shape)
    out = np.empty(shape, g.dtype)
    out[...] = g.reshape(kept)
    return out


def last_axis(x, axis):
    """x with the axes to be reduced as its last one, and the shape that keepdims=True would give the result."""
    kept = kept_shape(x.shape, axis)
    if axis is None or not x.ndim:
        return np.reshape(x, (x.size,)), kept
    axes = normalize_axis_tuple(axis, x.ndim)
    if axes == (x.ndim - 1,):
        return x, kept
    moved = np.moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    return np.reshape(moved, (*moved.shape[: x.ndim - len(axes)], count(x.shape, axis))), kept


# Sums and means.


def _sum(out, x, axis=None, dtype=None, out_=None, keepdims=False, initial=0, where=True):
    shape, kept = x.shape, kept_shape(x.shape, axis)
    if where is True:
        return lambda g: spread(g, kept, shape)
    where = np.array(where, bool)  # a copy: the caller's may change before the sweep
    return lambda g: np.where(where, np.reshape(g, kept), np.zeros(shape, g.dtype))


def _divided(g, n):
    """g / n for a count n, which float16 can't hold from 65520 on."""
    return g / n if g.dtype != np.float16 else g * (1 / n if n else np.nan)


def _mean(out, x, axis=None, dtype=None, out_=None, keepdims=False, where=True):
    shape, kept = x.shape, kept_shape(x.shape, axis)
    if where is True:
        n = count(shape, axis)
        return lambda g: spread(_divided(g, n), kept, shape) if n else np.zeros(shape, g.dtype)
    where = np.array(where, bool)
    n = np.sum(np.broadcast_to(where, shape), axis=axis, dtype=np.result_type(out.dtype, np.float32), keepdims=True)
    n = np.maximum(n, 1)
    return lambda g: np.where(where, np.reshape(g, kept) / n, np.zeros(shape, g.dtype))


differentiate(np.sum, _sum)
differentiate(np.mean, _mean)


@primitive
def variance(x, axis, ddof, keepdims):
    """np.var, of all elements along the axis."""
    return np.var(x, axis=axis, ddof=ddof, keepdims=keepdims)


@variance.defvjp
def _variance(out, x, axis, ddof, keepdims):
    kept, n = kept_shape(x.shape, axis), max(count(x.shape, axis) - ddof, 0)
    return lambda g: np.reshape(_divided(2 * g, n), kept) * (x - np.mean(x, axis=axis, keepdims=True))


@primitive
def deviation(x, axis, ddof, keepdims):
    """np.std, of all elements along the axis."""
    return np.std(x, axis=axis, ddof=ddof, keepdims=keepdims)


@deviation.defvjp
def _deviation(out, x, axis, ddof, keepdims):
    kept, n = kept_shape(x.shape, axis), max(count(x.shape, axis) - ddof, 0)

    def pullback(g):
        mean, spread = np.mean(x, axis=axis, keepdims=True), np.reshape(out, kept)
        equal = strip(spread) <= 4 * np.finfo(x.dtype).eps * np.abs(strip(mean))  # all but for the mean's rounding
        slope = np.where(equal, 0, 1 / np.where(equal, 1, spread))
        return _divided(np.reshape(g, kept) * slope, n) * (x - mean)

    return pullback


def root(square, size):
    """The root of a mean square of numbers of that size: with slope 0 where it is 0, but for their mean's rounding."""
    zero = strip(square) <= (4 * np.finfo(square.dtype).eps * size) ** 2
    return np.where(zero, np.sqrt(np.where(zero, strip(square), 0)), np.sqrt(np.where(zero, 1, square)))


def _moment(whole, finish):
    """np.var and np.std: `whole` is the primitive, `finish` makes the result of the mean square."""

    def moment(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=True, mean=None, correction=None):
        ddof = ddof if correction is None else correction
        a = in_dtype(as_array(a), dtype)
        if where is True and mean is None:
            return whole(a, axis, ddof, keepdims)
        where = np.broadcast_to(where, a.shape)
        if mean is None:
            mean = np.mean(a, axis=axis, keepdims=True, where=where)
        n = np.sum(where, axis=axis, keepdims=True, dtype=np.result_type(a.dtype, np.float32)) - ddof
        square = np.sum(np.square(a - mean), axis=axis, keepdims=True, where=where)
        size = np.max(np.abs(strip(a)), axis=axis, keepdims=True, where=where, initial=0)
        result = finish(square / np.maximum(n, 0).astype(square.dtype), size)
        return result if keepdims else np.squeeze(result, axis)

    return moment


implements(np.var)(_moment(variance, lambda square, size: square))
implements(np.std)(_moment(deviation, root))


# Largest and smallest.


MANY = 2**15  # elements from which on it pays to look where extrema are


def _extremum(out, x, axis=None, out_=None, keepdims=False, initial=_unset, where=True):
    kept = kept_shape(x.shape, axis)
    ties = x == np.reshape(out, kept)
    unknown = np.isnan(strip(x)) if np.any(np.isnan(strip(out))) else None
    plain = where is True and initial is _unset and unknown is None and ties.size >= MANY
    if plain and np.count_nonzero(ties) == np.size(out):
        return _places(ties, kept)
    if where is not True:
        ties = ties & where
    number = np.sum(ties, axis=axis, keepdims=True, dtype=out.dtype)
    if initial is not _unset:
        number = number + np.reshape(out == initial, kept)
    number = np.maximum(number, 1)
    if unknown is None:
        return lambda g: keep(np.reshape(g, kept) / number, ties)
    unknown = unknown & where
    return lambda g: np.where(unknown, np.asarray(np.nan, g.dtype), keep(np.reshape(g, kept) / number, ties))


def _places(ties, kept):
    """The pullback where each extremum is in one place only: zeros but for there."""
    shape, places = ties.shape, np.flatnonzero(ties)
    source = np.zeros_like(places)  # the results that the places belong to
    if len(places) > 1:
        index = np.unravel_index(places, shape)
        source = np.ravel_multi_index([np.minimum(i, n - 1) for i, n in zip(index, kept)], kept)
    return lambda g: np.reshape(scatter(read(np.reshape(g, -1), source), places, (math.prod(shape),)), shape)


for _function in (np.max, np.amax, np.min, np.amin):
    differentiate(_function, _extremum)


@implements(np.ptp)
def _ptp(a, axis=None, out=None, keepdims=False):
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


# Running sums and products.


def _reverse(x):
    return x[..., ::-1]


def _cumsum(out, x, axis=None, dtype=None, out_=None):
    shape = x.shape
    if axis is None:
        return lambda g: np.reshape(np.cumsum(g[::-1])[::-1], shape)
    return lambda g: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


differentiate(np.cumsum, _cumsum)


@primitive
def recurrence(g, x):
    """hᵢ = gᵢ + xᵢ·hᵢ₋₁ along the last axis, with h₋₁ = 0: the transpose of a running product, without a division."""
    h = np.empty(np.broadcast_shapes(g.shape, x.shape), np.result_type(g, x))
    previous = 0
    for i in range(h.shape[-1]):
        previous = h[..., i] = g[..., i] + x[..., i] * previous
    return h


def _after(x, first):
    """x one place later along the last axis, with `first` in front."""
    if not x.shape[-1]:
        return x
    return np.concatenate([np.full((*x.shape[:-1], 1), first, x.dtype), x[..., :-1]], axis=-1)


def _transposed(g, x):
    """The transpose of g ↦ recurrence(g, x): u_i = g_i + x_{i+1}·u_{i+1}."""
    return _reverse(recurrence(_reverse(g), _after(_reverse(x), 0)))


recurrence.defvjp(
    lambda out, g, x: lambda c: _transposed(c, x),
    lambda out, g, x: lambda c: _transposed(c, x) * _after(out, 0),
)


@primitive
def running_product(x):
    """np.cumprod along the last axis."""
    return np.cumprod(x, axis=-1)


@running_product.defvjp
def _running_product(out, x):
    return lambda g: _after(out, 1) * _transposed(g, x)


@primitive
def product(x):
    """np.prod over the last axis."""
    return np.prod(x, axis=-1)


@product.defvjp
def _product(out, x):
    """Each element's slope is the product of those before it and those after it."""
    return lambda g: g[..., None] * (running_product(_after(x, 1)) * _reverse(running_product(_after(_reverse(x), 1))))


@implements(np.prod)
def _prod(a, axis=None, dtype=None, out=None, keepdims=False, initial=_unset, where=True):
    a = in_dtype(a, dtype)
    a = a if where is True else np.where(where, a, 1)
    a, kept = last_axis(a, axis)
    result = product(a)
    if keepdims:
        result = np.reshape(result, kept)
    return result if initial is _unset else result * initial


@implements(np.cumprod)
def _cumprod(a, axis=None, dtype=None, out=None):
    a = in_dtype(a, dtype)
    if axis is None:
        return running_product(np.reshape(a, (-1,)))
    return np.moveaxis(running_product(np.moveaxis(a, axis, -1)), -1, axis)


def _cumulative(running, first):
    """np.cumulative_sum and np.cumulative_prod: optionally with the empty sum or product in front."""

    def cumulative(x, /, *, axis=None, dtype=None, out=None, include_initial=False):
        if axis is None:
            if x.ndim != 1:
                raise ValueError(f"an array of {x.ndim} dimensions needs an axis to run along")
            axis = 0
        result = running(x, axis=axis, dtype=dtype)
        if not include_initial:
            return result
        shape = list(x.shape)
        shape[axis] = 1
        return np.concatenate([np.full(shape, first, result.dtype), result], axis=axis)

    return cumulative


if hasattr(np, "cumulative_sum"):  # NumPy 2.1
    implements(np.cumulative_sum)(_cumulative(np.cumsum, 0))
    implements(np.cumulative_prod)(_cumulative(np.cumprod, 1))


# The methods of ufuncs. Their axis is 0 unless another is given.


def _reduce(function):
    def reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial=_unset, where=True):
        array = in_dtype(array, dtype)
        keywords = {} if initial is _unset else {"initial": initial}
        if where is not True:
            keywords["where"] = where
        return function(array, axis=axis, keepdims=keepdims, **keywords)

    return reduce


def _reduction(ufunc, identity, slope):
    """The reduction by a ufunc of two arguments, given `slope(x, out, axis)` where out has all its axes."""

    def forward(x, axis, keepdims):
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)

    def rule(out, x, axis, keepdims):
        kept = kept_shape(x.shape, axis)
        return lambda g: np.reshape(g, kept) * slope(x, np.reshape(out, kept), axis)

    forward.__name__ = f"{ufunc.__name__}_reduce"
    whole = primitive(forward)
    whole.defvjp(rule)

    def function(x, axis, keepdims, initial=identity, where=True):
        result = whole(x if where is True else np.where(where, x, identity), axis, keepdims)
        return result if initial == identity else ufunc(result, initial)

    return function


def _softmax(exp):
    """exp(x) by its sum: nothing where all are -inf, an even split among the infinite where the sum is +inf."""

    def slope(x, out, axis):
        out = strip(out)  # the shares don't depend on the number that all are shifted by
        infinite = np.isinf(out)
        if np.any(infinite):
            largest = np.asarray((x == out) & (out > 0), out.dtype)
            even = largest / np.maximum(np.sum(largest, axis=axis, keepdims=True), 1)
            return np.where(infinite, even, slope(np.where(infinite, 0, x), np.where(infinite, 0, out), axis))
        parts = exp(x - out)
        return parts / np.sum(parts, axis=axis, keepdims=True)

    return slope


def _ties(x, out, axis):
    ties = x == out
    return ties / np.maximum(np.sum(ties, axis=axis, keepdims=True, dtype=out.dtype), 1)


def _direction(x, out, axis):
    return x / np.where(out == 0, 1, out)


for _ufunc, _function in {
    np.add: np.sum,
    np.multiply: _prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.fmax: _reduction(np.fmax, -np.inf, _ties),
    np.fmin: _reduction(np.fmin, np.inf, _ties),
    np.logaddexp: _reduction(np.logaddexp, -np.inf, _softmax(np.exp)),
    np.logaddexp2: _reduction(np.logaddexp2, -np.inf, _softmax(np.exp2)),
    np.hypot: _reduction(np.hypot, 0, _direction),
}.items():
    implements((_ufunc, "reduce"))(_reduce(_function))


def _accumulate(function):
    def accumulate(array, axis=0, dtype=None, out=None):
        return function(in_dtype(array, dtype), axis=axis)

    return accumulate


def _running(ufunc):
    """np.maximum.accumulate and np.minimum.accumulate: each result copies one element, the first of equals."""

    def running(x, axis):
        plain = np.moveaxis(strip(x), axis, -1)
        total = ufunc.accumulate(plain, axis=-1)
        before, after = total[..., :-1], total[..., 1:]
        place = np.zeros(plain.shape, np.intp)
        place[..., 1:] = np.where((before == after) | np.isnan(before), 0, np.arange(1, plain.shape[-1]))
        place = np.maximum.accumulate(place, axis=-1)
        return np.take_along_axis(x, np.moveaxis(place, -1, axis), axis=axis)

    return running


for _ufunc, _function in {
    np.add: np.cumsum,
    np.multiply: np.cumprod,
    np.maximum: _running(np.maximum),
    np.minimum: _running(np.minimum),
}.items():
    implements((_ufunc, "accumulate"))(_accumulate(_function))

nondifferentiable(
    np.all, np.any, np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.count_nonzero, np.nonzero, np.flatnonzero,
    np.argwhere, (np.logical_and, "reduce"), (np.logical_or, "reduce"),
)  # fmt: skip
