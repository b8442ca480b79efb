"""Reductions: sum, mean, max and their kin, with axis and keepdims."""

from __future__ import annotations

import math

import numpy as np

from ..primitive import differentiate


def _kept(shape, axis):
    """The shape that keepdims=True would have given."""
    if axis is None:
        return (1,) * len(shape)
    axes = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _sum(out, x, axis=None, dtype=None, out_=None, keepdims=False):
    shape, kept = x.shape, _kept(x.shape, axis)
    return lambda g: np.broadcast_to(np.reshape(g, kept), shape)


def _mean(out, x, axis=None, dtype=None, out_=None, keepdims=False):
    shape, kept = x.shape, _kept(x.shape, axis)
    count = math.prod(n for n, k in zip(shape, kept) if k == 1) or 1
    return lambda g: np.broadcast_to(np.reshape(g / count, kept), shape)


def _extremum(out, x, axis=None, out_=None, keepdims=False):
    shape, kept = x.shape, _kept(x.shape, axis)
    ties = np.asarray(x == np.reshape(out, kept), x.dtype)
    share = ties / np.sum(ties, axis=axis, keepdims=True)
    return lambda g: np.reshape(g, kept) * share


differentiate(np.sum, _sum)
differentiate(np.mean, _mean)
differentiate(np.max, _extremum)
differentiate(np.min, _extremum)
