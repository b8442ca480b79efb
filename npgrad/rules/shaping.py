"""Functions that move elements without changing them; the pullback moves them back."""

from __future__ import annotations

import numpy as np

from ..primitive import differentiate, primitive
from ..variable import implements


def _back_to(out, x, *args, **kwargs):
    shape = x.shape
    return lambda g: np.reshape(g, shape)


differentiate(np.reshape, _back_to)
differentiate(np.squeeze, _back_to)
differentiate(np.expand_dims, _back_to)
differentiate(np.ravel, _back_to)


def _transpose(out, x, axes=None):
    back = None if axes is None else np.argsort([a % x.ndim for a in axes])
    return lambda g: np.transpose(g, back)


differentiate(np.transpose, _transpose)
differentiate(np.swapaxes, lambda out, x, axis1, axis2: lambda g: np.swapaxes(g, axis1, axis2))
differentiate(np.moveaxis, lambda out, x, source, destination: lambda g: np.moveaxis(g, destination, source))
differentiate(np.matrix_transpose, lambda out, x: lambda g: np.matrix_transpose(g))


def _broadcast_to(out, x, shape, subok=False):
    return lambda g: g  # the engine sums over the axes that were broadcast


differentiate(np.broadcast_to, _broadcast_to)


@primitive
def astype(x, dtype):
    """x in another floating-point precision; the cotangent comes back in x's own."""
    return np.asarray(x).astype(dtype)


astype.defvjp(lambda out, x, dtype: lambda g: g)  # the engine gives it x's dtype


@implements(np.astype) if hasattr(np, "astype") else lambda f: f
def _astype(x, dtype, /, *, copy=True, device=None):
    return astype(x, dtype)


@primitive
def join(*arrays, axis=0):
    """The arrays one after another along an axis, as np.concatenate."""
    return np.concatenate(arrays, axis=axis)


@join.defvjp_each
def _(i, out, *arrays, axis=0):
    start = sum(a.shape[axis] for a in arrays[:i])
    part = (slice(None),) * (axis % out.ndim) + (slice(start, start + arrays[i].shape[axis]),)
    return lambda g: g[part]


@implements(np.concatenate)
def _concatenate(arrays, axis=0):
    if axis is None:
        return join(*(np.ravel(a) for a in arrays))
    return join(*arrays, axis=axis)


@implements(np.stack)
def _stack(arrays, axis=0):
    return join(*(np.expand_dims(a, axis) for a in arrays), axis=axis)


@implements(np.split)
def _split(x, indices_or_sections, axis=0):
    n, places = x.shape[axis], indices_or_sections
    if isinstance(places, (int, np.integer)):
        if n % places:
            raise ValueError(f"an axis of {n} can't be split into {places} equal parts")
        places = range(n // places, n, n // places) if places > 1 else []
    before = (slice(None),) * (axis % x.ndim)
    starts, ends = [None, *places], [*places, None]
    return [x[(*before, slice(start, end))] for start, end in zip(starts, ends)]
