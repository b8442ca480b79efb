"""The feed-forward layer of today's decoders, where each token works alone."""

from __future__ import annotations

import math
from typing import Any

from ..fused import fused
from .activation import swiglu
from .arrays import as_floats, as_same_floats, half_in_single
from .linear import linear


@half_in_single
def feed_forward(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """(silu(x @ gate) · (x @ up)) @ down.

    x is (..., width), gate and up are (width, hidden), down is (hidden, outputs), of floats; the result is
    (..., outputs). ValueError if the shapes don't fit. Source: Shazeer, "GLU Variants Improve Transformer"
    (arXiv:2002.05202), equation 6.

    >>> import numpy as np
    >>> feed_forward(np.array([1000.0, 3.0]), np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]), np.ones((1, 2)))
    array([3000., 3000.])
    """
    x, gate, up, down = as_floats(x), as_floats(gate), as_floats(up), as_floats(down)
    _check(x, gate, up, down)
    return linear.reference(swiglu.reference(linear.reference(x, gate), linear.reference(x, up)), down)


@fused(feed_forward)  # type: ignore[no-redef]
@half_in_single
def feed_forward(x, gate, up, down):
    x, gate, up, down = as_same_floats(x, gate, up, down)
    _check(x, gate, up, down)
    lead = x.shape[:-1]
    rows = x.reshape(math.prod(lead), x.shape[-1])
    hidden, swiglu_pullback = swiglu.forward(rows @ gate, rows @ up)

    def pullback(g):
        g = g.reshape(len(rows), down.shape[1])
        dgate, dup = swiglu_pullback(g @ down.T)
        dx = dgate @ gate.T
        dx += dup @ up.T
        return dx.reshape(*lead, rows.shape[1]), rows.T @ dgate, rows.T @ dup, hidden.T @ g

    return (hidden @ down).reshape(*lead, down.shape[1]), pullback


def _check(x, gate, up, down):
    hidden = gate.shape[-1:]
    fits = x.ndim >= 1 and gate.ndim == down.ndim == 2 and gate.shape == up.shape
    if not fits or gate.shape[:1] != x.shape[-1:] or down.shape[:1] != hidden:
        raise ValueError(
            "feed_forward needs x (..., width), gate and up (width, hidden) and down (hidden, outputs), but the shapes "
            "given are " + ", ".join(str(a.shape) for a in (x, gate, up, down))
        )
