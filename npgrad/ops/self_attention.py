"""The attention layer of a decoder: what `attention` needs, made of one sequence of features, and back to features.

Heads are an axis before the tokens', so that attention multiplies matrices; in memory they stay beside each other, as
the products leave them, and no pass over memory turns one arrangement into the other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import as_integer
from ..fused import fused
from ..variable import Variable
from .arrays import as_floats, as_same_floats, half_in_single, ones
from .attention import attention
from .linear import linear
from .rotary import complex_factors, rotary_pairs


@half_in_single
def self_attention(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    bq: Any = None,
    bk: Any = None,
    bv: Any = None,
    bo: Any = None,
    *,
    heads: int,
    tables: tuple[Any, Any] | None = None,
    layout: str = "adjacent",
    mask: Any = None,
    window: int | None = None,
) -> Any:
    """Causal attention, from a sequence of features to one: attention by head, and the products before and after it.

    attention(rotated x @ wq + bq, rotated x @ wk + bk, x @ wv + bv) @ wo + bo. x is (..., tokens, features), wq
    (features, heads · width), wk and wv (features, shared · width), wo (heads · width, outputs), of floats; biases are
    None or have as many entries as their product has features; the result is (..., tokens, outputs). `heads` is how
    many heads of queries there are: it must divide wq's columns, and so gives the width of a head. `mask` and `window`
    are those of `attention`, whose heads may share keys and values.

    `tables` are the cosines and sines by which queries and keys turn, constants: with `rope =
    ng.RotaryEmbedding(width, max_positions)` they are `rope.tables((tokens, width))`, or
    `rope.tables((batch, 1, tokens, width), positions=positions)` for positions (batch, tokens); give its layout too,
    `layout=rope.layout`. Tables narrower than a head turn only its first features, with no error; None turns nothing.

    ValueError if the shapes don't fit, TypeError for tables that are not a pair of constants. Source: Vaswani et al.,
    "Attention Is All You Need" (arXiv:1706.03762), section 3.2.2.

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> self_attention(x, np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2), np.eye(2), heads=2)
    array([[1., 2.],
           [2., 3.]])
    """
    x, wq, wk, wv, wo = (as_floats(a) for a in (x, wq, wk, wv, wo))
    shared = _shared_heads(x, wq, wk, wv, wo, (bq, bk, bv, bo), heads, tables)
    q = split_heads(linear.reference(x, wq, bq), heads)
    k = split_heads(linear.reference(x, wk, bk), shared)
    v = split_heads(linear.reference(x, wv, bv), shared)
    if tables is not None:
        q, k = turned(q, tables, layout), turned(k, tables, layout)
    out = attention.reference(q, k, v, mask=mask, window=window)
    return linear.reference(merge_heads(out), wo, bo)


@fused(self_attention)  # type: ignore[no-redef]
@half_in_single
def self_attention(
    x,
    wq,
    wk,
    wv,
    wo,
    bq=None,
    bk=None,
    bv=None,
    bo=None,
    *,
    heads,
    tables=None,
    layout="adjacent",
    mask=None,
    window=None,
):
    x, wq, wk, wv, wo, *given = as_same_floats(x, wq, wk, wv, wo, *(b for b in (bq, bk, bv, bo) if b is not None))
    biases = bq, bk, bv, bo = [None if b is None else given.pop(0) for b in (bq, bk, bv, bo)]
    shared = _shared_heads(x, wq, wk, wv, wo, biases, heads, tables)
    rows, shape = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), x.shape

    def product(rows, w, b):
        out = rows @ w
        if b is not None:
            out += b
        return out.reshape(*shape[:-1], w.shape[1])

    turn = _turner(tables, layout, heads, (x.shape[-2], wq.shape[1] // heads), x.dtype)
    q, k = turn(product(rows, wq, bq), heads), turn(product(rows, wk, bk), shared)
    q, k, v = split_heads(q, heads), split_heads(k, shared), split_heads(product(rows, wv, bv), shared)
    out, attention_pullback = attention.forward(q, k, v, mask=mask, window=window)
    merged = merge_heads(out).reshape(len(rows), wo.shape[0])

    def pullback(g):
        g = g.reshape(len(rows), wo.shape[1])
        dq, dk, dv = attention_pullback(split_heads((g @ wo.T).reshape(*shape[:-1], wo.shape[0]), heads))
        dq, dk, dv = turn(merge_heads(dq), heads, True), turn(merge_heads(dk), shared, True), merge_heads(dv)
        dq, dk, dv = (d.reshape(len(rows), w.shape[1]) for d, w in ((dq, wq), (dk, wk), (dv, wv)))
        dx = dq @ wq.T
        dx += dk @ wk.T
        dx += dv @ wv.T
        weights = rows.T @ dq, rows.T @ dk, rows.T @ dv, merged.T @ g
        sums = (None if b is None else ones(len(d), d.dtype) @ d for b, d in zip(biases, (dq, dk, dv, g)))
        return dx.reshape(shape), *weights, *sums

    return product(merged, wo, bo), pullback


def split_heads(x: Any, heads: int) -> Any:
    """(..., tokens, heads · width) as (..., heads, tokens, width)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def merge_heads(x: Any) -> Any:
    """(..., heads, tokens, width) as (..., tokens, heads · width)."""
    *lead, heads, tokens, width = x.shape
    return x.swapaxes(-3, -2).reshape(*lead, tokens, heads * width)


def turned(x: Any, tables: tuple[Any, Any], layout: str = "adjacent", inverse: bool = False) -> Any:
    """x with the features that the tables are for rotated, and the rest as it is."""
    width = 2 * np.shape(tables[0])[-1]
    turned = rotary_pairs(x[..., :width], *tables, inverse=inverse, layout=layout)
    return turned if width == x.shape[-1] else np.concatenate([turned, x[..., width:]], axis=-1)


def _turner(tables, layout, heads, shape, dtype):
    """A function that turns (..., tokens, count · width), its caller's own, or turns it back, for count <= heads."""
    if tables is None:
        return lambda x, count, back=False: x
    cosines, sines = map(np.asarray, tables)
    tokens, width = shape
    if layout != "adjacent" or not cosines.shape == sines.shape == (tokens, width / 2):
        return lambda x, count, back=False: merge_heads(turned(split_heads(x, count), tables, layout, back))
    factors = complex_factors(cosines, sines, False, np.result_type(dtype, np.complex64))
    factors = factors[:, None].repeat(heads, axis=1).reshape(tokens, heads * width // 2)

    def turn(x, count, back=False):  # in place: all pairs of a token at once, as complex numbers
        pairs = x.view(factors.dtype)
        pairs *= (factors.conj() if back else factors)[:, : pairs.shape[-1]]
        return x

    return turn


def _shared_heads(x, wq, wk, wv, wo, biases, heads, tables):
    """How many heads of keys and values there are, if the arguments fit."""
    weights, heads = (wq, wk, wv, wo), as_integer(heads, "heads")
    fits = x.ndim >= 2 and all(w.ndim == 2 for w in weights) and wk.shape == wv.shape
    fits = fits and x.shape[-1] == wq.shape[0] == wk.shape[0] and wq.shape[1] == wo.shape[0]
    fits = fits and all(b is None or np.shape(b) == w.shape[1:] for w, b in zip(weights, biases))
    if not fits:
        given = zip(("x", "wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"), (x, *weights, *biases))
        raise ValueError(
            "self_attention needs x (..., tokens, features), wq (features, heads · width), wk and wv (features, "
            "shared · width), wo (heads · width, outputs), and after them biases as long as their products, but the "
            "shapes given are " + ", ".join(f"{name} {np.shape(a)}" for name, a in given if a is not None)
        )
    if tables is not None:
        _check_tables(tables)
    width = wq.shape[1] // heads if heads > 0 and wq.shape[1] % heads == 0 else 0
    if width == 0 or wk.shape[1] % width:
        raise ValueError(
            f"{wq.shape[1]} features of queries and {wk.shape[1]} of keys can't be split into heads of one width, with "
            f"{heads} of queries: heads must divide the first, and the width that this gives the second"
        )
    return wk.shape[1] // width


def _check_tables(tables):
    """TypeError unless they are two constant tables."""
    try:
        cosines, sines = tables
        fits = np.ndim(cosines) >= 2 and np.ndim(sines) >= 2
    except (TypeError, ValueError):  # they are not two, or no arrays
        fits = False
    if not fits:
        given = f"array of shape {tables.shape}" if isinstance(tables, np.ndarray) else type(tables).__name__
        raise TypeError(
            "the tables of self_attention must be a pair (cosines, sines), each of shape (..., tokens, width / 2), "
            f"not one {given}: ng.RotaryEmbedding(width, max_positions).tables((tokens, width)) makes them"
        )
    if type(cosines) is Variable or type(sines) is Variable:
        raise TypeError("the tables of self_attention are constants: pass ng.stop_gradient(tables)")
