"""Normalisation of each row of features: by its root mean square, or by its mean and standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fused import fused
from .arrays import as_floats, as_same_floats, half_in_single, ones


@half_in_single
def rms_norm(x: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    """weight · x / sqrt(mean(x²) + eps), over the last axis.

    x is (..., width) and weight (width,), of floats; the result has x's shape. eps is added inside the root.
    Squares are taken in x's dtype (float32 for float16): numbers beyond 1e19 overflow in float32. ValueError if the
    weight doesn't fit. Source: Zhang & Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467), equation 4.

    >>> rms_norm(np.array([3.0, 4.0]), np.array([1.0, 10.0]), eps=0.0).round(6)
    array([ 0.848528, 11.313708])
    """
    x, weight = as_floats(x), as_floats(weight)
    _check(x, "rms_norm", eps, weight=weight)
    return x / np.sqrt(_mean(x * x) + eps) * weight


@fused(rms_norm)  # type: ignore[no-redef]
@half_in_single
def rms_norm(x, weight, *, eps=1e-6):
    x, weight = as_same_floats(x, weight)
    _check(x, "rms_norm", eps, weight=weight)
    width = x.shape[-1]
    r = 1 / np.sqrt(np.vecdot(x, x)[..., None] / max(width, 1) + eps)
    normed = x * r

    def pullback(g):
        t = np.multiply(g, normed, order="C")
        rows = t.reshape(r.size, width)
        dweight = ones(r.size, r.dtype) @ rows
        along = rows @ weight
        along /= max(width, 1)
        dx = g * weight
        dx -= np.multiply(normed, along.reshape(r.shape), out=t)
        dx *= r
        return dx, dweight

    return normed * weight, pullback


@half_in_single
def layer_norm(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """weight · (x − mean) / sqrt(variance + eps) + bias, over the last axis; the variance divides by the width.

    x is (..., width), weight and bias are (width,), of floats; the result has x's shape. ValueError if they don't fit.
    Source: Ba, Kiros & Hinton, "Layer Normalization" (arXiv:1607.06450), equation 4.

    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.array([0.0, 10.0]), eps=0.0)
    array([-1., 11.])
    """
    x, weight, bias = as_floats(x), as_floats(weight), as_floats(bias)
    _check(x, "layer_norm", eps, weight=weight, bias=bias)
    centred = x - _mean(x)
    return centred / np.sqrt(_mean(centred * centred) + eps) * weight + bias


@fused(layer_norm)  # type: ignore[no-redef]
@half_in_single
def layer_norm(x, weight, bias, *, eps=1e-5):
    x, weight, bias = as_same_floats(x, weight, bias)
    _check(x, "layer_norm", eps, weight=weight, bias=bias)
    width = max(x.shape[-1], 1)
    normed = np.subtract(x, np.vecdot(x, ones(x.shape[-1], x.dtype))[..., None] / width, order="C")
    r = 1 / np.sqrt(np.vecdot(normed, normed)[..., None] / width + eps)
    normed *= r
    out = normed * weight
    out += bias

    def pullback(g):
        shape, along_rows = (r.size, len(weight)), ones(r.size, r.dtype)
        t = np.multiply(g, normed, order="C")
        dweight, dbias = along_rows @ t.reshape(shape), along_rows @ g.reshape(shape)
        along = np.matmul(t, weight)[..., None] / width
        dx = g * weight
        dx -= np.matmul(g, weight)[..., None] / width
        dx -= np.multiply(normed, along, out=t)
        dx *= r
        return dx, dweight, dbias

    return out, pullback


def _mean(x):
    """The mean over the last axis, kept; 0 where there is nothing."""
    return np.sum(x, axis=-1, keepdims=True) / max(x.shape[-1], 1)


def _check(x, name, eps, **vectors):
    if not eps >= 0:
        raise ValueError(f"{name} needs eps of 0 or more, not {eps}: it is added to a mean of squares")
    for what, vector in vectors.items():
        if x.ndim < 1 or vector.shape != x.shape[-1:]:
            raise ValueError(
                f"{name} needs x of shape (..., width) and a {what} of shape (width,), but they have shapes "
                f"{x.shape} and {vector.shape}"
            )
