"""The loss of a language model: cross-entropy of the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import as_floats, as_ids
from .softmax import log_softmax


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
    rows = np.reshape(log_softmax(logits), (-1, logits.shape[-1]))
    return -np.sum(rows[counted, tokens]) / max(len(tokens), 1)


def _checked(logits, targets, ignore_index):
    """The targets that count and the numbers of their tokens, both flat."""
    targets = np.asarray(targets)
    if logits.ndim < 1 or targets.shape != logits.shape[:-1]:
        raise ValueError(
            "logits must have shape (..., vocabulary) and targets the same without the last axis, but they have shapes "
            f"{logits.shape} and {targets.shape}"
        )
    flat = targets.reshape(-1)
    counted = np.arange(flat.size) if ignore_index is None else np.flatnonzero(flat != ignore_index)
    return as_ids(flat[counted], f"targets for {logits.shape[-1]} logits", logits.shape[-1]), counted
