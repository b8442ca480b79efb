"""Indexing: x[i] reads, and its pullback adds into zeros at the same places."""

from __future__ import annotations

import numpy as np

from ..primitive import primitive


@primitive
def getitem(x, index):
    """x[index], for every kind of index that NumPy knows."""
    return x[index]


@primitive
def scatter(g, index, shape):
    """Zeros of `shape` with g added at `index`; duplicates accumulate. The transpose of `getitem`."""
    out = np.zeros(shape, g.dtype)
    if _has_arrays(index):
        np.add.at(out, index, g)
    else:
        out[index] += g
    return out


@getitem.defvjp
def _(out, x, index):
    shape = x.shape
    return lambda g: scatter(g, index, shape)


scatter.defvjp(lambda out, g, index, shape: lambda h: h[index])


def _has_arrays(index):
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(i, (np.ndarray, list)) for i in parts)
