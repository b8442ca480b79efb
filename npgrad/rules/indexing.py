"""Indexing: x[i] reads, and its pullback adds into zeros at the same places; `set_at` and `add_at` write.

An index is a constant: integers, slices, None, ..., lists, arrays of integers or booleans, and tuples of these. What
is read twice gets both cotangents. What is written twice by `set_at` holds the last value, as in NumPy, and only that
one gets a gradient.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from ..errors import explain
from ..primitive import primitive
from ..variable import Variable, implements, strip


@primitive
def read(x, index):
    """x[index], for every kind of index that NumPy knows."""
    return x[index]


@primitive
def scatter(g, index, shape):
    """Zeros of `shape` with g added at `index`; duplicates accumulate. The transpose of `read`."""
    out = np.zeros(shape, g.dtype)
    if all(_is_unique(i) for i in (index if type(index) is tuple else (index,))):
        out[index] = g
    elif out.size and g.size:  # one flat list of places: add.at is several times faster on it than on rows
        np.add.at(out.reshape(-1), _places(index, shape).reshape(-1), np.broadcast_to(g, g.shape).reshape(-1))
    return out


def snapshot(index):
    """An index that the caller can't change: a batch may be filled again before the sweep."""
    if type(index) is np.ndarray:
        return index.copy()
    if type(index) is tuple:
        return tuple(map(snapshot, index))
    return copy.deepcopy(index) if type(index) is list else index


def _read(out, x, index):
    shape, index = x.shape, snapshot(index)
    return lambda g: scatter(g, index, shape)


def _scatter(out, g, index, shape):
    index = snapshot(index)
    return lambda h: read(h, index)


read.defvjp(_read)
scatter.defvjp(_scatter)


def getitem(x: Any, index: Any) -> Any:
    """x[index]; TypeError if a Variable is part of the index."""
    refuse_variables(index)
    try:
        return read(x, index)
    except Exception as error:
        explain(error, "getitem", (x, index), {})
        raise


def refuse_variables(index):
    """TypeError if a Variable is part of the index."""
    if type(index) is Variable or (type(index) in (tuple, list) and any(type(i) is Variable for i in index)):
        raise TypeError("an index can't be a Variable: it has no derivative; index with i.value")


def _is_unique(part):
    """Whether this part of an index, beside others like it, can't read an element twice: all but integer arrays."""
    part = np.asarray(part)
    return part.dtype.kind not in "iu" or not part.ndim


def _places(index, shape):
    """Where in the flattened array the elements of x[index] are."""
    if isinstance(index, (np.ndarray, list)):
        rows, width = np.asarray(index).astype(np.intp), math.prod(shape[1:])  # int8 would overflow below
        rows = np.where(rows < 0, rows + shape[0], rows)
        return rows[..., None] * width + np.arange(width)
    return np.arange(math.prod(shape)).reshape(shape)[index]


# Updates that give a new array.


@primitive
def _set_at(x, index, value):
    out = np.array(x)
    out[index] = value
    return out


_set_at.__name__ = "set_at"  # type: ignore[attr-defined]  # what the tape's listing shows


def _set_value(out, x, index, value):
    before, index = np.shape(value), snapshot(index)
    places = _places((index,) if not isinstance(index, tuple) else index, x.shape)
    writer = np.empty(math.prod(x.shape), np.intp)
    order = np.arange(places.size).reshape(places.shape)
    writer[places] = order
    last = writer[places] == order

    def pullback(g):
        found = np.where(last, read(g, index), 0)
        return np.reshape(found, (1,) * (len(before) - found.ndim) + found.shape) if len(before) > found.ndim else found

    return pullback


def _set_base(out, x, index, value):
    index = snapshot(index)
    return lambda g: _set_at(g, index, 0.0)


_set_at.defvjp(_set_base, None, _set_value)


def set_at(x: Any, index: Any, value: Any) -> Any:
    """A copy of x in which x[index] = value; differentiable in x and in value.

    value broadcasts against x[index] and takes x's dtype. Where an element is written more than once the last value
    stays, and it alone has a gradient. IndexError and ValueError as in NumPy's assignment, TypeError for a Variable in
    the index.

    >>> set_at(np.zeros(4), [1, 3], [5.0, 7.0])
    array([0., 5., 0., 7.])
    """
    x, value = _operands(x, index, value)
    return _set_at(x, index, value)


def add_at(x: Any, index: Any, value: Any) -> Any:
    """A copy of x in which x[index] += value, with repeated elements adding up; differentiable in x and in value.

    value broadcasts against x[index]. IndexError and ValueError as in NumPy's assignment, TypeError for a Variable in
    the index.

    >>> add_at(np.zeros(4), [1, 1, 3], 1.0)
    array([0., 2., 0., 1.])
    """
    x, value = _operands(x, index, value)
    shape = getitem(strip(x), index).shape
    value = np.reshape(value, np.shape(value)[np.ndim(value) - len(shape) :]) if np.ndim(value) > len(shape) else value
    value = np.broadcast_to(value if value.dtype == x.dtype else value.astype(x.dtype), shape)
    return x + scatter(value, index, x.shape)


def _operands(x, index, value):
    """Both as float arrays, and an index known to be constant."""
    refuse_variables(index)
    x, value = (a if type(a) is Variable else np.asarray(a) for a in (x, value))
    if x.dtype.kind in "iub" and value.dtype.kind == "f":
        x = x.astype(value.dtype)
    return x, value


# NumPy's functions that read.


@implements(np.take)
def _take(a, indices, axis=None, out=None, mode="raise"):
    refuse_variables(indices)
    if axis is None:
        a, axis = np.ravel(a), 0
    indices, n = np.asarray(indices), a.shape[axis]
    if indices.dtype.kind not in "iu":
        indices = indices.astype(np.intp, casting="unsafe" if not indices.size else "same_kind")
    if mode != "raise":
        indices = indices.astype(np.intp)  # a narrow dtype may not hold n
        indices = indices % n if mode == "wrap" else np.clip(indices, 0, n - 1)
    return read(a, indices if axis % a.ndim == 0 else (slice(None),) * (axis % a.ndim) + (indices,))


@implements(np.compress)
def _compress(condition, a, axis=None, out=None):
    return _take(a, np.flatnonzero(strip(condition)), axis)


@implements(np.extract)
def _extract(condition, arr):
    return _take(arr, np.flatnonzero(strip(condition)))
