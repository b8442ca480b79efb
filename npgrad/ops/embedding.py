"""Embedding: rows of a table by number; the gradient adds what each row received."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitive import primitive
from ..rules.indexing import scatter
from .arrays import as_floats, as_ids


@primitive
def embedding(table: Any, ids: Any) -> Any:
    """table[ids]: a row for each id.

    table is (rows, width) of floats, ids are integers of any shape in 0..rows−1; the result is (*ids.shape, width).
    Gradients of repeated ids add up. IndexError names an id that is out of range, negative ones too; TypeError for
    ids that are not integers, or that stand before the table.

    >>> embedding(np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 0, 1])
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    first, second = np.asarray(table), np.asarray(ids)
    if first.dtype.kind in "iu" and second.dtype.kind == "f" and second.size:
        raise TypeError("an embedding's table comes first, but here the ids do: write embedding(table, ids)")
    table = as_floats(table)
    return np.take(table, _checked(table, ids), axis=0)


@embedding.defvjp
def _(out, table, ids):
    shape = table.shape
    ids = _checked(table, ids).astype(np.intp)  # a copy: a batch may be filled again before the sweep
    return lambda g: scatter(g, ids, shape)


def _checked(table, ids):
    if table.ndim < 1:
        raise ValueError("an embedding table must have shape (rows, width), but this one is a single number")
    rows = table.shape[0]
    remedy = "make the table longer, or look where the id is from"
    return as_ids(ids, f"ids of a table of {rows} rows", rows, remedy, "ids are counted from 0")
