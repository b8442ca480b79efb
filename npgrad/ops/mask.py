"""The causal mask: which keys a query may see.

Queries are the last tokens of the keys unless an offset says where they start: query i sits at position offset + i and
sees the keys up to that position, only the last `window` of them if there is a window.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..primitive import primitive
from .arrays import as_floats


@primitive
def causal_mask(scores: Any, *, offset: int | None = None, window: int | None = None) -> Any:
    """Scores with -inf wherever a key comes after its query, or `window` keys or more before it.

    scores are floats of shape (..., queries, keys); query i sits at position offset + i, by default such that the last
    query sees the last key, and keeps the keys in (position − window, position]. Masked scores have a zero gradient.
    ValueError for fewer than two axes or a window below 1.

    >>> causal_mask(np.ones((2, 3)))
    array([[  1.,   1., -inf],
           [  1.,   1.,   1.]])
    """
    scores = as_floats(scores)
    out = np.array(scores)
    np.copyto(out, -np.inf, where=~_visible(scores, offset, window))
    return out


@causal_mask.defvjp
def _(out, scores, *, offset=None, window=None):
    keep = _visible(scores, offset, window)
    return lambda g: np.where(keep, g, np.zeros((), g.dtype))


def _visible(scores, offset, window):
    if scores.ndim < 2:
        raise ValueError(f"scores must have shape (..., queries, keys), but have shape {scores.shape}")
    return visible_keys(scores.shape[-2], scores.shape[-1], offset, window)


def visible_keys(queries: int, keys: int, offset: int | None = None, window: int | None = None) -> np.ndarray:
    """A boolean array (queries, keys): True where the causal mask lets a query see a key."""
    first = keys - queries if offset is None else operator.index(offset)
    distance = np.arange(first, first + queries)[:, None] - np.arange(keys)
    if window is None:
        return distance >= 0
    check_window(window)
    return (distance >= 0) & (distance < window)


def check_window(window: int) -> None:
    """ValueError if a window shows nothing."""
    if operator.index(window) < 1:
        raise ValueError(f"a window of {window} keys shows nothing: it must be at least 1, or None for no limit")
