"""Softmax and its logarithms: exp(x) over its sum along an axis, stable at any size of x.

All three subtract the row's maximum first, which changes nothing but keeps exp in range. Conventions at infinity:
a row that is -inf throughout (a query that may see nothing) has softmax 0, log_softmax and logsumexp -inf, and zero
gradient; a row that contains +inf has no softmax, so that softmax and log_softmax are NaN there, and logsumexp +inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitive import fused, primitive
from ..variable import strip
from .arrays import as_floats

Axis = int | tuple[int, ...] | None


def softmax(x: Any, axis: Axis = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, several axes, or all of them (None).

    x is a float array of any shape; the result has its shape and dtype. Entries of -inf get 0, a row of nothing
    else zeros with a zero gradient. VJP: p·(g − Σ g·p).

    >>> softmax(np.array([0.0, np.log(3.0), -np.inf])).round(12)
    array([0.25, 0.75, 0.  ])
    """
    e, total = _exp_and_sum(as_floats(x), axis)
    return e / total


@fused(softmax)  # type: ignore[no-redef]
def softmax(x, axis=-1):
    p, total = _exp_and_sum(as_floats(x), axis)
    p /= total

    def pullback(g):
        d = g * p
        d -= p * np.sum(d, axis=axis, keepdims=True)
        return (d,)

    return p, pullback


def log_softmax(x: Any, axis: Axis = -1) -> Any:
    """x − logsumexp(x) along an axis, several axes, or all of them (None): the logarithm of softmax, in range.

    x is a float array of any shape; the result has its shape and dtype. VJP: g − softmax(x)·Σ g.

    >>> log_softmax(np.array([1000.0, 1000.0]))
    array([-0.69314718, -0.69314718])
    """
    x = as_floats(x)
    shifted = _shifted(x, axis)
    total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
    return np.where(total == 0, -np.inf, shifted - np.log(total + (total == 0)))


@fused(log_softmax)  # type: ignore[no-redef]
def log_softmax(x, axis=-1):
    out = _shifted(as_floats(x), axis)
    total = np.sum(np.exp(out), axis=axis, keepdims=True)
    empty = total == 0
    out -= np.log(total + empty)

    def pullback(g):
        d = np.exp(out)
        d *= -np.sum(g, axis=axis, keepdims=True)
        d += g
        return (np.where(empty, np.zeros((), d.dtype), d) if empty.any() else d,)

    return out, pullback


@primitive
def logsumexp(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along an axis, several axes, or all of them (None).

    x is a float array of any shape; the result has its dtype. An empty or wholly -inf row gives -inf with a zero
    gradient. VJP: g·softmax(x).

    >>> logsumexp(np.array([[1000.0, 1000.0], [-np.inf, 1000.0]]))
    array([1000.69314718, 1000.        ])
    """
    x = as_floats(x)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    total = np.sum(np.exp(_shifted(x, axis)), axis=axis, keepdims=True)
    out = np.where(np.isinf(top), top, top + np.log(np.where(total > 0, total, np.ones((), x.dtype))))
    return out if keepdims else np.squeeze(out, axis=axis)


@logsumexp.defvjp
def _(out, x, axis=-1, keepdims=False):
    kept = out.shape if keepdims or axis is None else np.expand_dims(strip(out), axis).shape

    def pullback(g):
        return np.reshape(g, (1,) * np.ndim(x) if axis is None else kept) * softmax(x, axis)

    return pullback


def _exp_and_sum(x, axis):
    """exp(x) up to a factor per row, and its sum to divide by: 1 where that is 0."""
    e = np.exp(_shifted(x, axis))
    total = np.sum(e, axis=axis, keepdims=True)
    return e, total + (total == 0)


def _shifted(x, axis):
    """x minus its row's maximum, so that exp stays in range; NaN in a row with +inf."""
    top = np.max(strip(x), axis=axis, keepdims=True, initial=-np.inf)
    finite = np.where(np.isposinf(top), np.nan, top + 0)
    finite[np.isneginf(finite)] = 0
    with np.errstate(over="ignore"):  # 1e308 - -1e308
        return x - finite.astype(x.dtype)
