"""Functions that move elements without changing them; the pullback moves them back.

A few are primitives (reshape, transpose, flip, roll, join, diagonal…); the others are written in terms of those and of
indexing. np.pad along an axis is an index for the modes that repeat elements, and a matrix for those that combine them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..primitive import differentiate, primitive
from ..variable import Variable, implements, strip


def as_array(x):
    """x if it has a shape, else an array of it."""
    return x if hasattr(x, "shape") else np.asarray(x)


def in_one_dtype(*arrays):
    """Arrays in the dtype that NumPy gives a result of all: arithmetic among integers alone overflows in their own."""
    found = [*map(as_array, arrays)]
    dtype = np.result_type(*(a.dtype for a in found))
    return [a if type(a) is Variable else a.astype(dtype, copy=False) for a in found]


def _back_to(out, x, *args, **kwargs):
    shape = x.shape
    return lambda g: np.reshape(g, shape)


def _reshape(out, x, shape=None, order="C", *, newshape=None, copy=None):
    before = x.shape
    if order == "C":
        return lambda g: np.reshape(g, before)
    order = "F" if order == "F" or strip(x).flags.fnc else "C"
    return lambda g: np.reshape(g, before, order)


differentiate(np.reshape, _reshape)
differentiate(np.squeeze, _back_to)
differentiate(np.expand_dims, _back_to)


@implements(np.ravel)
def _ravel(a, order="C"):
    if order == "K":  # as the elements lie in memory
        a, order = np.transpose(a, np.argsort([-abs(s) for s in strip(a).strides], kind="stable")), "C"
    return np.reshape(a, (-1,) if a.size else (0,), order)


def _transpose(out, x, axes=None):
    back = None if axes is None else np.argsort([a % x.ndim for a in axes])
    return lambda g: np.transpose(g, back)


differentiate(np.transpose, _transpose)
differentiate(np.swapaxes, lambda out, x, axis1, axis2: lambda g: np.swapaxes(g, axis1, axis2))
differentiate(np.moveaxis, lambda out, x, source, destination: lambda g: np.moveaxis(g, destination, source))
differentiate(np.matrix_transpose, lambda out, x: lambda g: np.matrix_transpose(g))
implements(np.linalg.matrix_transpose)(lambda x, /: np.matrix_transpose(x))


@implements(np.rollaxis)
def _rollaxis(a, axis, start=0):
    axis = normalize_axis_index(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise np.exceptions.AxisError(start, a.ndim)
    return np.moveaxis(a, axis, start - (axis < start))


# Reversing, turning, shifting.


def _roll(out, x, shift, axis=None):
    back = np.negative(shift)
    return lambda g: np.roll(g, back, axis)


differentiate(np.flip, lambda out, x, axis=None: lambda g: np.flip(g, axis))
differentiate(np.rot90, lambda out, x, k=1, axes=(0, 1): lambda g: np.rot90(g, -k, axes))
differentiate(np.roll, _roll)
implements(np.fliplr)(lambda m: np.flip(m, 1))
implements(np.flipud)(lambda m: np.flip(m, 0))

# Broadcasting and repeating: the engine sums over the axes that were broadcast.

differentiate(np.broadcast_to, lambda out, x, shape, subok=False: lambda g: g)


@implements(np.broadcast_arrays)
def _broadcast_arrays(*args, subok=False):
    shape = np.broadcast_shapes(*map(np.shape, args))
    return tuple(np.broadcast_to(a, shape) for a in args)


@implements(np.meshgrid)
def _meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    if indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid with indexing={indexing!r}: it must be 'xy' or 'ij'")
    grids = [np.reshape(x, (-1,) + (1,) * (len(xi) - 1 - i)) for i, x in enumerate(map(as_array, xi))]
    grids = [np.reshape(x, (1,) * i + x.shape) for i, x in enumerate(grids)]
    if indexing == "xy" and len(xi) > 1:
        grids = [np.swapaxes(x, 0, 1) for x in grids]
    return tuple(grids) if sparse else _broadcast_arrays(*grids)


@implements(np.ix_)
def _ix(*args):
    arrays = [np.flatnonzero(x) if x.dtype == bool else x for x in map(as_array, args)]
    if any(x.ndim != 1 for x in arrays):
        raise ValueError("np.ix_ takes arrays of one dimension")
    return _meshgrid(*arrays, sparse=True, indexing="ij")


@implements(np.tile)
def _tile(A, reps):
    reps = tuple(reps) if np.ndim(reps) else (reps,)
    shape = (1,) * (len(reps) - A.ndim) + A.shape
    reps = (1,) * (len(shape) - len(reps)) + reps
    apart = np.reshape(A, tuple(n for size in shape for n in (1, size)))
    repeated = np.broadcast_to(apart, tuple(n for pair in zip(reps, shape) for n in pair))
    return np.reshape(repeated, tuple(r * n for r, n in zip(reps, shape)))


@implements(np.repeat)
def _repeat(a, repeats, axis=None):
    if axis is None or not a.ndim:
        a, axis = np.ravel(a), 0
    axis = normalize_axis_index(axis, a.ndim)
    if np.size(repeats) != 1:
        return np.take(a, np.repeat(np.arange(a.shape[axis]), repeats), axis)
    (n,) = np.ravel(repeats)
    before, after = a.shape[: axis + 1], a.shape[axis + 1 :]
    repeated = np.broadcast_to(np.reshape(a, (*before, 1, *after)), (*before, n, *after))
    return np.reshape(repeated, (*before[:-1], before[-1] * n, *after))


@implements(np.resize)
def _resize(a, new_shape):
    new_shape = tuple(new_shape) if np.ndim(new_shape) else (new_shape,)
    if any(n < 0 for n in new_shape):
        raise ValueError(f"np.resize to {new_shape}: sizes must not be negative")
    if not a.size:
        return np.broadcast_to(np.sum(a), new_shape)  # zeros, on the tape
    return np.reshape(np.take(a, np.arange(math.prod(new_shape)) % a.size), new_shape)


# Precision and copies.


@primitive
def cast(x, dtype):
    """x in another floating-point precision; the cotangent comes back in x's own."""
    return np.asarray(x).astype(dtype)


cast.defvjp(lambda out, x, dtype: lambda g: g)  # the engine gives it x's dtype


def astype(x, dtype):
    """x in another dtype: a plain array if it is of integers or booleans, as for np.floor; TypeError for complex."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return strip(x).astype(dtype)
    return cast(x, dtype)


if hasattr(np, "astype"):

    @implements(np.astype)
    def _astype(x, dtype, /, *, copy=True, device=None):
        return astype(x, dtype)


implements(np.copy)(lambda a, order="K", subok=False: +a)


@implements(np.full_like)
def _full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    if not isinstance(fill_value, Variable):
        return np.full_like(strip(a), fill_value, dtype, shape=shape)
    filled: Any = np.broadcast_to(fill_value, np.shape(a) if shape is None else shape)
    return astype(filled, strip(a).dtype if dtype is None else dtype)


# More dimensions.


def _at_least(n, function):
    @implements(function)
    def at_least(*arys):
        found = []
        for a in map(as_array, arys):
            missing = n - a.ndim
            shape = (1, *a.shape, 1) if n == 3 and a.ndim == 1 else (1,) * missing + a.shape
            shape = (*a.shape, 1) if n == 3 and a.ndim == 2 else shape
            found.append(np.reshape(a, shape) if missing > 0 else a)
        return found[0] if len(found) == 1 else tuple(found)

    return at_least


_at_least_1d, _at_least_2d, _at_least_3d = map(_at_least, (1, 2, 3), (np.atleast_1d, np.atleast_2d, np.atleast_3d))

# Joining and parting.


@primitive
def join(*arrays, axis=0):
    """The arrays one after another along an axis, as np.concatenate."""
    return np.concatenate(arrays, axis=axis)


@join.defvjp_each
def _(i, out, *arrays, axis=0):
    start = sum(a.shape[axis] for a in arrays[:i])
    part = (slice(None),) * (axis % out.ndim) + (slice(start, start + arrays[i].shape[axis]),)
    return lambda g: g[part]


def _joined(arrays, axis, dtype=None):
    out = join(*arrays, axis=axis)
    return out if dtype is None or out.dtype == dtype else astype(out, dtype)


@implements(np.concatenate)
def _concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [*map(as_array, arrays)]
    if axis is None:
        arrays, axis = [np.ravel(a) for a in arrays], 0
    return _joined(arrays, axis, dtype)


@implements(np.stack)
def _stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    arrays = [*map(as_array, arrays)]
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1:
        raise ValueError(f"np.stack needs arrays of one shape, but got {sorted(shapes)}")
    return _joined([np.expand_dims(a, axis) for a in arrays], axis, dtype)


@implements(np.vstack, *[np.row_stack] if "row_stack" in np.__all__ else [])
def _vstack(tup, *, dtype=None, casting="same_kind"):
    return _joined([_at_least_2d(a) for a in tup], 0, dtype)


@implements(np.hstack)
def _hstack(tup, *, dtype=None, casting="same_kind"):
    arrays = [_at_least_1d(a) for a in tup]
    return _joined(arrays, 0 if arrays and arrays[0].ndim == 1 else 1, dtype)


@implements(np.dstack)
def _dstack(tup):
    return _joined([_at_least_3d(a) for a in tup], 2)


@implements(np.column_stack)
def _column_stack(tup):
    arrays = [*map(as_array, tup)]
    return _joined([a if a.ndim > 1 else np.reshape(a, (-1, 1)) for a in arrays], 1)


@implements(np.append)
def _append(arr, values, axis=None):
    return _concatenate((arr, values), axis=axis)


@implements(np.block)
def _block(arrays):
    def depth(part):
        return 1 + max(map(depth, part)) if isinstance(part, list) and part else 0

    def rank(part):
        return max(map(rank, part)) if isinstance(part, list) else np.ndim(part)

    def build(part, level):
        if isinstance(part, list):
            return _joined([build(p, level - 1) for p in part], -level)
        part = as_array(part)
        return np.reshape(part, (1,) * (dimensions - part.ndim) + part.shape)

    dimensions = max(depth(arrays), rank(arrays))
    return build(arrays, depth(arrays))


def _parts(x, places, axis):
    """Slices of x between the places; for a number, that many parts whose lengths differ by at most one."""
    axis = normalize_axis_index(axis, x.ndim)
    if not np.ndim(places):
        if places < 1:
            raise ValueError(f"an axis can't be split into {places} parts")
        size, longer = divmod(x.shape[axis], int(places))
        places = np.cumsum([size + (i < longer) for i in range(places - 1)])
    ends = [None, *map(int, places), None]
    return [x[(slice(None),) * axis + (slice(a, b),)] for a, b in itertools.pairwise(ends)]


@implements(np.array_split)
def _array_split(ary, indices_or_sections, axis=0):
    return _parts(ary, indices_or_sections, axis)


@implements(np.split)
def _split(ary, indices_or_sections, axis=0):
    places = indices_or_sections
    if not np.ndim(places) and places > 0 and ary.shape[axis] % places:
        raise ValueError(f"an axis of {ary.shape[axis]} can't be split into {places} equal parts")
    return _parts(ary, places, axis)


implements(np.hsplit)(lambda ary, indices_or_sections: _split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1))
implements(np.vsplit)(lambda ary, indices_or_sections: _split(ary, indices_or_sections, 0))
implements(np.dsplit)(lambda ary, indices_or_sections: _split(ary, indices_or_sections, 2))

if hasattr(np, "unstack"):

    @implements(np.unstack)
    def _unstack(x, /, *, axis=0):
        return tuple(np.moveaxis(x, axis, 0))


# Taking elements out and putting others in.


@implements(np.delete)
def _delete(arr, obj, axis=None):
    if axis is None:
        arr, axis = np.ravel(arr), 0
    return np.take(arr, np.delete(np.arange(arr.shape[axis]), strip(obj)), axis)


@implements(np.insert)
def _insert(arr, obj, values, axis=None):
    arr, values = as_array(arr), as_array(values)
    if axis is None:
        arr, axis = np.ravel(arr), 0
    axis, n = normalize_axis_index(axis, arr.ndim), arr.shape[axis]
    places = np.arange(n)[obj] if isinstance(obj, slice) else np.asarray(strip(obj))
    places = np.flatnonzero(places) if places.dtype == bool else places
    new = places.size
    if new == 1:  # then NumPy inserts as many as there are values
        values = np.reshape(values, (1,) * (arr.ndim - values.ndim) + values.shape)
        values = np.moveaxis(values, 0, axis) if places.ndim == 0 else values
        new = values.shape[axis]
    values = np.broadcast_to(values, (*arr.shape[:axis], new, *arr.shape[axis + 1 :]))
    order = np.insert(np.arange(n), strip(obj), n + np.arange(new))
    return np.take(_joined([arr, astype(values, arr.dtype)], axis), order, axis)


@implements(np.trim_zeros)
def _trim_zeros(filt, trim="fb", axis=None):
    axes = range(filt.ndim) if axis is None else normalize_axis_tuple(axis, filt.ndim)
    places = np.nonzero(strip(filt))
    part = [slice(None)] * filt.ndim
    for a in axes:
        first, last = (places[a].min(), places[a].max() + 1) if places[a].size else (0, 0)
        trims = trim.lower()
        part[a] = slice(first if "f" in trims or not last else None, last if "b" in trims or not last else None)
    return filt[tuple(part)]


# Diagonals and triangles.

differentiate(np.tril, lambda out, x, k=0: lambda g: np.tril(g, k))
differentiate(np.triu, lambda out, x, k=0: lambda g: np.triu(g, k))


@primitive
def on_diagonal(d, offset, axis1, axis2, shape):
    """Zeros of `shape` with the last axis of d along a diagonal: the transpose of np.diagonal."""
    out = np.zeros(shape, d.dtype)
    view = np.moveaxis(out, (axis1, axis2), (-2, -1))
    i = np.arange(d.shape[-1])
    view[..., i + max(-offset, 0), i + max(offset, 0)] = d
    return out


on_diagonal.defvjp(lambda out, d, offset, axis1, axis2, shape: lambda g: np.diagonal(g, offset, axis1, axis2))


def _diagonal(out, x, offset=0, axis1=0, axis2=1):
    shape = x.shape
    return lambda g: on_diagonal(g, offset, axis1, axis2, shape)


differentiate(np.diagonal, _diagonal)


@implements(np.linalg.diagonal)
def _matrix_diagonal(x, /, *, offset=0):
    return np.diagonal(x, offset, -2, -1)


@implements(np.diag)
def _diag(v, k=0):
    if v.ndim not in (1, 2):
        raise ValueError(f"np.diag takes arrays of 1 or 2 dimensions, not {v.ndim}")
    n = v.shape[0] + abs(k)
    return np.diagonal(v, k) if v.ndim == 2 else on_diagonal(v, k, 0, 1, (n, n))


implements(np.diagflat)(lambda v, k=0: _diag(np.ravel(v), k))


@implements(np.trace)
def _trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements(np.linalg.trace)
def _matrix_trace(x, /, *, offset=0, dtype=None):
    return np.sum(np.diagonal(x, offset, -2, -1), axis=-1, dtype=dtype)


# Padding.


@primitive
def surround(x, width, kwargs):
    """x with `width` ((before, after) for each axis) new elements around it that don't depend on it."""
    return np.pad(x, width, **kwargs)


@surround.defvjp
def _surround(out, x, width, kwargs):
    inner = tuple(slice(before, before + n) for (before, _), n in zip(width, x.shape))
    return lambda g: g[inner]


def _pad_matrix(x, axis, width, kwargs):
    """Pad along an axis by what NumPy makes of the unit vectors: for the modes that are linear, up to a constant."""
    n = x.shape[axis]
    matrix = np.pad(np.eye(n, dtype=x.dtype), (width, (0, 0)), **kwargs)
    shift = np.pad(np.zeros(n, x.dtype), width, **kwargs)
    if shift.any():
        matrix = matrix - shift[:, None]
    padded = np.moveaxis(np.matmul(matrix, np.moveaxis(x, axis, -1)[..., None])[..., 0], -1, axis)
    return padded + np.reshape(shift, (-1,) + (1,) * (x.ndim - 1 - axis)) if shift.any() else padded


def _pad_statistic(x, axis, width, function, lengths):
    parts = [x]
    for side, (count, length) in enumerate(zip(width, lengths)):
        n = x.shape[axis]
        length = n if length is None else min(length, n)
        near = (slice(None),) * axis + (slice(n - length, n) if side else slice(0, length),)
        found = function(x[near], axis=axis, keepdims=True)
        wide = np.broadcast_to(found, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
        parts = [*parts, wide] if side else [wide, *parts]
    return _joined(parts, axis)


def _pairs(value, ndim):
    """What np.pad's arguments mean: a number, a pair, or a pair for each axis; a dict names axes."""
    if isinstance(value, dict):
        named = {normalize_axis_index(axis, ndim): pair for axis, pair in value.items()}
        value = [named.get(axis, 0) for axis in range(ndim)]
        value = [pair if np.ndim(pair) else (pair, pair) for pair in value]
    return np.broadcast_to(value, (ndim, 2)).tolist()


@implements(np.pad)
def _pad(array, pad_width, mode="constant", **kwargs):
    width = tuple(map(tuple, _pairs(pad_width, array.ndim)))
    if mode in ("constant", "empty"):
        if isinstance(kwargs.get("constant_values"), Variable):
            raise TypeError("np.pad's constant_values can't be a Variable: write ng.set_at(np.full(...), index, x)")
        return surround(array, width, {"mode": mode, **kwargs})
    if callable(mode):
        raise TypeError("np.pad with a function as mode writes in place: use np.concatenate")
    np.pad(np.empty(array.shape, bool), 0, mode, **kwargs)  # NumPy's own complaints
    statistics = {"maximum": np.max, "minimum": np.min, "median": np.median, "mean": np.mean}
    lengths = _pairs(kwargs.get("stat_length"), array.ndim)
    ends = _pairs(kwargs.get("end_values", 0), array.ndim)
    for axis, pair in enumerate(width):
        if pair == (0, 0):
            continue
        if mode in statistics:
            array = _pad_statistic(array, axis, pair, statistics[mode], lengths[axis])
        elif mode == "linear_ramp":
            array = _pad_matrix(array, axis, pair, {"mode": mode, "end_values": tuple(ends[axis])})
        elif kwargs.get("reflect_type") == "odd":
            array = _pad_matrix(array, axis, pair, {"mode": mode, **kwargs})
        else:
            array = np.take(array, np.pad(np.arange(array.shape[axis]), pair, mode), axis)
    return array


# Functions applied along axes.


@implements(np.apply_along_axis)
def _apply_along_axis(func1d, axis, arr, *args, **kwargs):
    lines = np.moveaxis(arr, axis, -1)
    found = [func1d(lines[place], *args, **kwargs) for place in np.ndindex(*lines.shape[:-1])]
    if not found:
        raise ValueError(f"np.apply_along_axis over an array of shape {arr.shape} has no line to apply the function to")
    result = np.stack(found)
    inner = result.ndim - 1
    result = np.reshape(result, lines.shape[:-1] + result.shape[1:])
    start = normalize_axis_index(axis, arr.ndim)
    return np.moveaxis(result, range(result.ndim - inner, result.ndim), range(start, start + inner))


@implements(np.apply_over_axes)
def _apply_over_axes(func, a, axes):
    for axis in np.ravel(axes):
        found = func(a, int(axis))
        a = found if found.ndim == a.ndim else np.expand_dims(found, int(axis))
    return a
