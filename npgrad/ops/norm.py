"""Normalisation of each row of features: by its root mean square, or by its mean and standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import as_floats


def rms_norm(x: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    """weight · x / sqrt(mean(x²) + eps), over the last axis.

    x is (..., width) and weight (width,), of floats; the result has x's shape. eps is added inside the root.
    ValueError if the weight doesn't fit. Source: Zhang & Sennrich, "Root Mean Square Layer Normalization"
    (arXiv:1910.07467), equation 4.

    >>> rms_norm(np.array([3.0, 4.0]), np.array([1.0, 10.0]), eps=0.0).round(6)
    array([ 0.848528, 11.313708])
    """
    x, weight = as_floats(x), as_floats(weight)
    _check(x, "rms_norm", weight=weight)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def layer_norm(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """weight · (x − mean) / sqrt(variance + eps) + bias, over the last axis; the variance divides by the width.

    x is (..., width), weight and bias are (width,), of floats; the result has x's shape. ValueError if they don't fit.
    Source: Ba, Kiros & Hinton, "Layer Normalization" (arXiv:1607.06450), equation 4.

    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.array([0.0, 10.0]), eps=0.0)
    array([-1., 11.])
    """
    x, weight, bias = as_floats(x), as_floats(weight), as_floats(bias)
    _check(x, "layer_norm", weight=weight, bias=bias)
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias


def _check(x, name, **vectors):
    for what, vector in vectors.items():
        if x.ndim < 1 or vector.shape != x.shape[-1:]:
            raise ValueError(
                f"{name} needs x of shape (..., width) and a {what} of shape (width,), but they have shapes "
                f"{x.shape} and {vector.shape}"
            )
