"""The loss of a language model: cross-entropy of the next token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import as_integer
from ..fused import fused
from .arrays import as_floats, as_ids, half_in_single
from .softmax import exp_and_sum, log_softmax, shifted


@half_in_single
def cross_entropy(logits: Any, targets: Any, *, ignore_index: int | None = None) -> Any:
    """The mean of −log softmax(logits)[target] over the tokens whose target isn't `ignore_index`.

    logits are floats (..., vocabulary), targets integers (...) in 0..vocabulary−1; the result is a scalar of the
    logits' dtype, in nats. If every token is ignored it is 0, with a zero gradient. IndexError names a target that is
    out of range, ValueError if the shapes don't fit, TypeError for targets that are not integers.

    >>> cross_entropy(np.array([[0.0, 0.0], [0.0, 1000.0]]), [0, 1])
    np.float64(0.34657359027997264)
    """
    logits = as_floats(logits)
    tokens, counted = _checked(logits, targets, ignore_index)
    rows = np.reshape(log_softmax(logits), (math.prod(logits.shape[:-1]), logits.shape[-1]))
    counted = np.arange(len(tokens)) if counted is None else counted
    return -np.sum(rows[counted, tokens]) / max(len(tokens), 1)


@fused(cross_entropy)  # type: ignore[no-redef]
@half_in_single
def cross_entropy(logits, targets, *, ignore_index=None):
    logits = as_floats(logits)
    tokens, counted = _checked(logits, targets, ignore_index)
    shape, count = logits.shape, max(len(tokens), 1)
    rows = logits.reshape(math.prod(shape[:-1]), shape[-1])
    if counted is not None:
        rows = rows[counted]
    e, total, top = exp_and_sum(rows)
    at = np.arange(len(tokens)), tokens
    chosen, empty = rows[at], False
    if not isinstance(top, float):
        chosen, empty = shifted(chosen, top[:, 0]), total == 0
        total += empty
    losses = np.log(total)[:, 0] - chosen

    def pullback(g):
        share = np.where(empty, 0, g / count).astype(e.dtype)  # of the loss, for each token
        d = e * (share / total)
        d[at] -= share.reshape(-1)
        if counted is None:
            return (d.reshape(shape),)
        full = np.zeros((math.prod(shape[:-1]), shape[-1]), d.dtype)
        full[counted] = d
        return (full.reshape(shape),)

    return np.sum(losses) / count, pullback


def _checked(logits, targets, ignore_index):
    """The targets that count, flat, and the numbers of their tokens, None if every one counts."""
    targets = np.asarray(targets)
    if ignore_index is not None:
        ignore_index = as_integer(ignore_index, "ignore_index")
    if logits.ndim < 1 or targets.shape != logits.shape[:-1]:
        raise ValueError(
            "logits must have shape (..., vocabulary) and targets the same without the last axis, but they have shapes "
            f"{logits.shape} and {targets.shape}"
        )
    flat, counted = targets.flatten(), None  # a copy: a batch may be filled again before the sweep
    if ignore_index is not None and (flat == ignore_index).any():
        counted = np.flatnonzero(flat != ignore_index)
        flat = flat[counted]
    count = logits.shape[-1]
    return as_ids(flat, f"targets for {count} logits", count, "ignore_index=… leaves tokens out"), counted
