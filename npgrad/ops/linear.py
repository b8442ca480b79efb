"""A linear map of features, with all leading axes folded into one product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..fused import fused
from .arrays import as_floats, as_same_floats, half_in_single, ones


@half_in_single
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight + bias.

    x is (..., inputs), weight (inputs, outputs), bias (outputs,) or None, of floats; the result is (..., outputs). It
    differs from x @ weight in speed only: NumPy multiplies once for each leading index, this once in all, and so do
    both gradients. ValueError if the shapes don't fit.

    >>> linear(np.array([[1.0, 2.0]]), np.eye(2), np.array([10.0, 20.0]))
    array([[11., 22.]])
    """
    x, weight = as_floats(x), as_floats(weight)
    bias = None if bias is None else as_floats(bias)
    _check(x, weight, bias)
    out = np.matmul(x, weight)
    return out if bias is None else out + bias


@fused(linear)  # type: ignore[no-redef]
@half_in_single
def linear(x, weight, bias=None):
    given = [x, weight] if bias is None else [x, weight, bias]
    x, weight, *rest = as_same_floats(*given)
    _check(x, weight, *rest, *[None] * (bias is None))
    lead = x.shape[:-1]
    rows = x.reshape(math.prod(lead), x.shape[-1])
    out = rows @ weight
    if rest:
        out += rest[0]

    def pullback(g):
        g = g.reshape(rows.shape[0], weight.shape[1])
        dx = (g @ weight.T).reshape(*lead, weight.shape[0])
        return dx, rows.T @ g, ones(len(g), g.dtype) @ g if rest else None

    return out.reshape(*lead, weight.shape[1]), pullback


def _check(x, weight, bias):
    shapes = [a.shape for a in (x, weight, bias) if a is not None]
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[0] or shapes[2:] not in ([], [weight.shape[1:]]):
        raise ValueError(
            "linear needs x (..., inputs), weight (inputs, outputs) and bias (outputs,), but the shapes given are "
            + ", ".join(map(str, shapes))
        )
