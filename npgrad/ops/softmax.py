"""Softmax and its logarithms: exp(x) over its sum along an axis, stable at any size of x.

All three subtract the row's maximum first, which changes nothing but keeps exp in range. Conventions at infinity:
a row that is -inf throughout (a query that may see nothing) has softmax 0, log_softmax and logsumexp -inf, and zero
gradient; a row that contains +inf has no softmax, so that softmax and log_softmax are NaN there, and logsumexp +inf,
with its gradient evenly split among the infinite.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..fused import fused
from ..primitive import primitive
from ..variable import strip
from .arrays import as_floats, half_in_single, ones

Axis = int | tuple[int, ...] | None


@half_in_single
def softmax(x: Any, axis: Axis = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, several axes, or all of them (None).

    x is a float array of any shape; the result has its shape and dtype. Entries of -inf get 0, a row of nothing
    else zeros with a zero gradient. VJP: p·(g − Σ g·p).

    >>> softmax(np.array([0.0, np.log(3.0), -np.inf])).round(12)
    array([0.25, 0.75, 0.  ])
    """
    x = as_floats(x)
    e = np.exp(shifted(x, np.max(strip(x), axis=axis, keepdims=True, initial=-np.inf)))
    total = np.sum(e, axis=axis, keepdims=True)
    return e / (total + (total == 0))


@fused(softmax)  # type: ignore[no-redef]
@half_in_single
def softmax(x, axis=-1):
    p, total, _ = exp_and_sum(as_floats(x), axis)
    p /= total + (total == 0)

    def pullback(g):
        d = g - _dot(g, p, axis)
        d *= p
        return (d,)

    return p, pullback


@half_in_single
def log_softmax(x: Any, axis: Axis = -1) -> Any:
    """x − logsumexp(x) along an axis, several axes, or all of them (None): the logarithm of softmax, in range.

    x is a float array of any shape; the result has its shape and dtype. VJP: g − softmax(x)·Σ g.

    >>> log_softmax(np.array([1000.0, 1000.0]))
    array([-0.69314718, -0.69314718])
    """
    x = as_floats(x)
    x = shifted(x, np.max(strip(x), axis=axis, keepdims=True, initial=-np.inf))
    total = np.sum(np.exp(x), axis=axis, keepdims=True)
    return np.where(total == 0, -np.inf, x - np.log(total + (total == 0)))


@fused(log_softmax)  # type: ignore[no-redef]
@half_in_single
def log_softmax(x, axis=-1):
    x = as_floats(x)
    e, total, top = exp_and_sum(x, axis)
    empty = total == 0
    total += empty
    out = shifted(x, top)
    out -= np.log(total)

    def pullback(g):
        d = e * (-np.sum(g, axis=axis, keepdims=True) / total)
        d += g
        return (np.where(empty, np.zeros((), d.dtype), d) if empty.any() else d,)

    return out, pullback


@primitive
@half_in_single
def logsumexp(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along an axis, several axes, or all of them (None).

    x is a float array of any shape; the result has its dtype. An empty or wholly -inf row gives -inf with a zero
    gradient. VJP: g·softmax(x).

    >>> logsumexp(np.array([[1000.0, 1000.0], [-np.inf, 1000.0]]))
    array([1000.69314718, 1000.        ])
    """
    _, total, top = exp_and_sum(as_floats(x), axis)
    with np.errstate(divide="ignore"):  # an empty row's sum is 0
        out = np.where(np.isnan(total) & np.isposinf(top), top, np.log(total) + top)
    return out if keepdims else np.squeeze(out, axis=axis)


@logsumexp.defvjp
def _(out, x, axis=-1, keepdims=False):
    kept = out.shape if keepdims or axis is None else np.expand_dims(strip(out), axis).shape

    def pullback(g):
        whole = (1,) * np.ndim(x) if axis is None else kept
        return np.reshape(g, whole) * _shares(x, np.reshape(strip(out), whole), axis)

    return pullback


def _shares(x: Any, total: np.ndarray, axis: Axis) -> Any:
    """softmax(x), but in rows whose logsumexp is +inf the limit: an even split among the infinite."""
    infinite = np.isposinf(total)
    if not infinite.any():
        return softmax(x, axis)
    largest = np.isposinf(strip(x)).astype(total.dtype)
    even = largest / np.maximum(np.sum(largest, axis=axis, keepdims=True), 1)
    return np.where(infinite, even, softmax(np.where(infinite, np.zeros((), total.dtype), x), axis))


def exp_and_sum(x: np.ndarray, axis: Axis = -1) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
    """exp(x − top), its sums along the axis (kept), and top: the rows' maxima, or 0 where no shift is needed."""
    if x.size and x.ndim and axis in (-1, x.ndim - 1):
        with np.errstate(over="ignore"):
            e = np.exp(x, order="C")
            total = row_sums(e)
        if in_range(total):  # nothing was lost without the shift, which costs as much again
            return e, total, 0.0
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    e = np.exp(shifted(x, top))
    return e, np.sum(e, axis=axis, keepdims=True), top


def shifted(x: Any, top: Any) -> Any:
    """x − top, but −inf where top is −inf, and NaN where it is +inf."""
    if np.any(np.isinf(top)):
        top = np.where(np.isneginf(top), np.zeros_like(top), np.where(np.isposinf(top), np.full_like(top, np.nan), top))
    with np.errstate(over="ignore"):  # 1e308 - -1e308
        return x - top


def row_sums(e: np.ndarray) -> np.ndarray:
    """The sums over the last axis of a contiguous array that isn't empty, kept: a product with ones is quickest.

    They may overflow, which `in_range` sees: to be called where NumPy doesn't warn of that.
    """
    return (e.reshape(-1, e.shape[-1]) @ ones(e.shape[-1], e.dtype)).reshape(*e.shape[:-1], 1)


def in_range(total: np.ndarray) -> bool:
    """Whether sums of unshifted exponentials are far enough from overflow and underflow to divide by them."""
    least, most = _range(total.dtype)
    return bool(total.min() > least and total.max() < most)


@functools.cache
def _range(dtype):
    limits = np.finfo(dtype)
    return limits.tiny**0.5, limits.max**0.5


def _dot(x, y, axis):
    if axis in (-1, x.ndim - 1):
        return np.vecdot(x, y)[..., None]
    return np.sum(x * y, axis=axis, keepdims=True)
