"""Scaled dot-product attention, causal by default, with grouped key/value heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arrays import as_floats
from .mask import visible_keys
from .softmax import softmax


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    offset: int | None = None,
    mask: Any = None,
    window: int | None = None,
    scale: float | None = None,
) -> Any:
    """softmax(scale · q kᵀ, masked) v for each head.

    q is (..., heads, queries, width), k (..., shared, keys, width), v (..., shared, keys, value width), of floats; the
    result is (..., heads, queries, value width). heads must be a multiple of shared: query head h reads key/value head
    h // (heads / shared). scale is 1/sqrt(width) unless given. `causal`, `offset` and `window` mask as `causal_mask`
    does; `mask` is boolean, True where a key is visible, and broadcasts against (..., heads, queries, keys). A query
    that sees nothing gets zeros and has zero gradients. ValueError if shapes don't fit, TypeError for a mask that is
    not boolean. Source: Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), equation 1; for grouped heads
    Ainslie et al., "GQA" (arXiv:2305.13245).

    >>> q = k = np.zeros((1, 2, 4))
    >>> attention(q, k, np.array([[[1.0], [3.0]]]))
    array([[[1.],
            [2.]]])
    """
    q, k, v = as_floats(q), as_floats(k), as_floats(v)
    visible = _visible(q, k, v, causal, offset, mask, window)
    heads, queries, width = q.shape[-3:]
    shared = k.shape[-3]
    q = np.reshape(q, (*q.shape[:-3], shared, heads // shared, queries, width))
    k, v = np.expand_dims(k, -3), np.expand_dims(v, -3)  # one key/value head for each group of queries' heads
    scores = np.matmul(q * (1 / math.sqrt(width) if scale is None else scale), np.swapaxes(k, -1, -2))
    if visible is not None:
        scores = np.where(visible, scores, np.asarray(-np.inf, scores.dtype))
    out = np.matmul(softmax(scores), v)
    return np.reshape(out, (*out.shape[:-4], heads, queries, v.shape[-1]))


def _visible(q, k, v, causal, offset, mask, window):
    """Who sees whom, broadcastable to scores of shape (..., shared, group, queries, keys); None: everyone."""
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ValueError(f"attention needs q, k and v of shape (..., heads, tokens, width), not {_shapes(q, k, v)}")
    (heads, queries, width), (shared, keys, _) = q.shape[-3:], k.shape[-3:]
    if k.shape[-1] != width or v.shape[-3:-1] != (shared, keys):
        raise ValueError(
            f"q and k must have one width, k and v the same heads and tokens, but q, k and v are {_shapes(q, k, v)}"
        )
    if shared == 0 or heads % shared:
        raise ValueError(f"{heads} query heads can't share {shared} key/value heads: give a multiple of them")
    if not causal and (offset is not None or window is not None):
        raise ValueError("offset and window belong to the causal mask: leave them out with causal=False")
    visible = visible_keys(queries, keys, offset, window) if causal else None
    if mask is None:
        return visible
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean, True where a key is visible, not {mask.dtype}")
    try:
        np.broadcast_shapes(mask.shape[-3:], (heads, queries, keys))
    except ValueError:
        raise ValueError(
            f"a mask of shape {mask.shape} must broadcast against (..., heads, queries, keys), which end here in "
            f"{(heads, queries, keys)}"
        ) from None
    if mask.ndim >= 3:
        split = (1, 1) if mask.shape[-3] == 1 else (shared, heads // shared)
        mask = mask.reshape(*mask.shape[:-3], *split, *mask.shape[-2:])
    return mask if visible is None else mask & visible


def _shapes(*arrays):
    return ", ".join(str(a.shape) for a in arrays)
