"""Order and choice: sort, partition, quantiles, take_along_axis, select, choose, piecewise.

Sorting moves elements, and so does its pullback, backwards. A quantile is a weighted mean of its neighbours in rank;
which weights, NumPy itself tells for the numbers 0, 1, 2… in place of the data, for each of its methods. Equal
elements are ranked in the order in which they stand (a stable sort), so the gradient of a median among equals goes to
the middle one. Gradients with respect to q, and quantiles with weights, are refused.
"""

from __future__ import annotations

import numpy as np

from ..primitive import primitive
from ..variable import Variable, implements, nondifferentiable, strip
from .indexing import scatter
from .reductions import as_array, last_axis

# Sorting.


@primitive
def permuted(x, order, axis):
    """x in another order along an axis: `order` holds every position exactly once."""
    return np.take_along_axis(x, order, axis)


@permuted.defvjp
def _permuted(out, x, order, axis):
    return lambda g: permuted(g, _inverse(order, axis), axis)


def _inverse(order, axis):
    """Where each position went: the permutation that undoes `order` along an axis."""
    inverse = np.empty_like(order)
    places = np.arange(order.shape[axis]).reshape([-1 if i == axis % order.ndim else 1 for i in range(order.ndim)])
    np.put_along_axis(inverse, order, places, axis)
    return inverse


@implements(np.sort)
def _sort(a, axis=-1, kind=None, order=None, *, stable=None):
    if axis is None:
        a, axis = np.ravel(a), 0
    return permuted(a, np.argsort(strip(a), axis=axis, kind="stable"), axis)


@implements(np.partition)
def _partition(a, kth, axis=-1, kind="introselect", order=None):
    if axis is None:
        a, axis = np.ravel(a), 0
    return permuted(a, np.argpartition(strip(a), kth, axis=axis, kind=kind), axis)


@implements(np.take_along_axis)
def _take_along_axis(arr, indices, axis=-1):
    arr, indices = as_array(arr), as_array(indices)
    if axis is None:
        return np.ravel(arr)[indices]
    axis = np.lib.array_utils.normalize_axis_index(axis, arr.ndim)
    if indices.ndim != arr.ndim:
        raise ValueError(f"indices of {indices.ndim} dimensions for an array of {arr.ndim}: they must be as many")
    places = [np.arange(n).reshape([-1 if i == d else 1 for i in range(arr.ndim)]) for d, n in enumerate(arr.shape)]
    places[axis] = indices
    return arr[tuple(places)]


# Quantiles.


@primitive
def quantile(x, function, positions):
    """function(x), a quantile over the last axis: the weighted mean of the two elements beside a position in rank.

    x (..., n), positions (..., number of quantiles) between 0 and n - 1; the result has the quantiles' shape in front.
    """
    return function(x)


@quantile.defvjp
def _quantile(out, x, function, positions):
    ranks = _inverse(np.argsort(strip(x), axis=-1, kind="stable"), -1)
    weights = np.maximum(0, 1 - np.abs(ranks[..., None] - positions[..., None, :])).astype(x.dtype)
    lead = (weights.shape[-1], *x.shape[:-1])
    return lambda g: np.sum(weights * np.moveaxis(np.reshape(g, lead), 0, -1)[..., None, :], axis=-1)


def _positions(x, q, method, skip_nan):
    """Where the quantiles lie in the sorted data, as NumPy has it for the data 0, 1, 2…; outside if there are none."""
    numbers = np.sum(~np.isnan(x), axis=-1) if skip_nan else np.full(x.shape[:-1], x.shape[-1])
    positions = np.full((*numbers.shape, np.size(q)), -2.0)
    for n in np.unique(numbers):
        if n:
            positions[numbers == n] = np.ravel(np.quantile(np.arange(float(n)), q, method=method))
    return positions


def _implement_quantile(function, method, skip_nan):
    """A NumPy function of x and q over an axis; `method` given by the caller, or None where the function has none."""

    def run(a, q, axis, keepdims, method, call):
        if type(q) is Variable:
            raise TypeError(f"np.{function.__name__} can't be differentiated with respect to q: pass q.value")
        x, kept = last_axis(as_array(a), tuple(axis) if type(axis) is list else axis)
        result = quantile(x, call, _positions(strip(x), q, method, skip_nan))
        return np.reshape(result, np.shape(q) + kept) if keepdims else result

    if method is None:

        @implements(function)
        def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
            return run(a, 0.5, axis, keepdims, "linear", lambda x: function(x, axis=-1))

    else:
        scale = 100 if "percentile" in function.__name__ else 1

        @implements(function)
        def quantiles(a, q, axis=None, out=None, overwrite_input=False, method=method, keepdims=False, *, weights=None):
            if weights is not None:
                raise TypeError(f"np.{function.__name__} with weights= can't be differentiated")
            fractions = q if type(q) is Variable else np.true_divide(q, scale)
            return run(a, fractions, axis, keepdims, method, lambda x: function(x, q, axis=-1, method=method))


_implement_quantile(np.median, None, False)
_implement_quantile(np.nanmedian, None, True)
_implement_quantile(np.quantile, "linear", False)
_implement_quantile(np.percentile, "linear", False)
_implement_quantile(np.nanquantile, "linear", True)
_implement_quantile(np.nanpercentile, "linear", True)

# Choosing among arrays.


@implements(np.select)
def _select(condlist, choicelist, default=0):
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"np.select got {len(condlist)} conditions and {len(choicelist)} choices: give as many of each"
        )
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = np.where(condition, choice, result)
    return result


@implements(np.choose)
def _choose(a, choices, out=None, mode="raise"):
    a, n = np.asarray(strip(a)), len(choices)
    if mode == "raise" and a.size and not 0 <= np.min(a) <= np.max(a) < n:
        raise ValueError(f"np.choose among {n} arrays got indices from {np.min(a)} to {np.max(a)}: they start at 0")
    a = a % n if mode == "wrap" else np.clip(a, 0, n - 1)
    result = choices[0]
    for i in range(1, n):
        result = np.where(a == i, choices[i], result)
    return np.where(a == 0, choices[0], result)


@implements(np.piecewise)
def _piecewise(x, condlist, funclist, *args, **kw):
    conditions = strip(condlist)
    if np.ndim(conditions) == x.ndim:
        conditions = [conditions]
    conditions = [np.broadcast_to(np.asarray(c, bool), x.shape) for c in conditions]
    if len(funclist) == len(conditions) + 1:
        conditions.append(~np.logical_or.reduce(conditions))
    if len(funclist) != len(conditions):
        raise ValueError(
            f"np.piecewise with {len(conditions)} conditions needs as many functions, or one more: a default"
        )
    result = np.zeros(x.shape, x.dtype)
    for condition, function in zip(conditions, funclist):
        piece = scatter(function(x[condition], *args, **kw), condition, x.shape) if callable(function) else function
        result = np.where(condition, piece, result)
    return result


nondifferentiable(np.argsort, np.argpartition, np.lexsort, np.searchsorted, np.digitize, np.isin)
