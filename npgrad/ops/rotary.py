"""Rotation of pairs of features, each by its own angle: what rotary position embedding (RoPE) does to queries and keys.

The derivative of a rotation is its transpose: the same rotation backwards, so one primitive serves both directions. It
stays right for tables that carry a scale, where the transpose is no longer the inverse. Adjacent pairs (2k, 2k+1) are
complex numbers that happen to be stored as two floats; turning them is one multiplication by cos + i·sin. Where the
tables come from is `npgrad.rope`'s affair.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..primitive import primitive
from .arrays import as_floats

BUFFER = 8192  # items: np.getbufsize()
HUGE = 1 << 25  # bytes: memory of this size is new each time, and copying is the quickest way to fill it


class RotaryError(ValueError):
    """A rotation or its tables can't be made; `code` names the reason for programs, the message for people.

    `position` and `pair` say where a table would hold a value that is not finite, and are None otherwise.
    """

    def __init__(self, code: str, message: str, position: int | None = None, pair: int | None = None):
        super().__init__(message)
        self.code, self.position, self.pair = code, position, pair

    def __reduce__(self) -> tuple:  # how it comes back from another process
        return type(self), (self.code, *self.args, self.position, self.pair)


@primitive
def rotary_pairs(x: Any, cosines: Any, sines: Any, *, inverse: bool = False, layout: str = "adjacent") -> Any:
    """Turn each pair of features: (a, b) ↦ (a·cos − b·sin, a·sin + b·cos).

    x is (..., tokens, width), of floats; its pairs are features (2k, 2k+1), or (k, k + width/2) with layout="half".
    cosines and sines are (tokens, width/2), or have leading axes that broadcast against x's; they are rounded to x's
    dtype, which is the result's, and are needed again by the gradient: leave them unchanged until then. With `inverse`
    the sines change sign: for tables without a scale this undoes the rotation. Arithmetic is IEEE's: −0.0 stays what
    it makes of it, and NaN stays within its pair. RotaryError for shapes that don't fit: "input-rank",
    "odd-feature-width", "feature-width-mismatch", "table-shape-mismatch".
    Source: Su et al., "RoFormer" (arXiv:2104.09864), equations 13 and 34; the halves are GPT-NeoX's and Llama's.

    >>> rotary_pairs(np.array([[3.0, 4.0]]), np.array([[0.0]]), np.array([[1.0]]))
    array([[-4.,  3.]])
    """
    x, cosines, sines = as_floats(x), as_floats(cosines), as_floats(sines)
    if type(x) is np.memmap:
        x = np.asarray(x)  # results, which are arranged like x, lie in no file
    _check(x, cosines, sines, layout)
    if layout == "half":
        return _turn_halves(x, cosines, sines, inverse)
    kind = _complex(x.dtype)
    part = _part(kind)  # x's own, or native float32 for float16, of which there are no complex numbers
    as_it_is = x.dtype == part and x.strides[-1] == x.itemsize
    floats = x if as_it_is else np.ascontiguousarray(x, part)
    spread = _spread(floats, cosines)
    factors = _repeated(complex_factors(cosines, sines, inverse, kind), spread)
    return _product(floats, factors, spread).astype(x.dtype, copy=False)


def _turn_halves(x, cosines, sines, inverse):
    """x · (cos, cos) + (b, a) · (−sin, sin): whole rows at a time, which is twice as fast as half rows."""

    def times(x, tables):
        table = np.concatenate(tables, axis=-1, dtype=x.dtype)
        spread = _spread(x, table)
        return _product(x, _repeated(table, spread), spread)

    a, b = _pairs(x, "half")
    out = times(x, (cosines, cosines))
    out += times(np.concatenate([b, a], axis=-1, dtype=x.dtype), (sines, -sines) if inverse else (-sines, sines))
    return out


def complex_factors(cosines: np.ndarray, sines: np.ndarray, inverse: bool, kind: np.dtype) -> np.ndarray:
    """cos + i·sin, or its conjugate."""
    factors = np.empty(cosines.shape, kind)
    factors.real = cosines
    if inverse:
        np.negative(sines, out=factors.imag, casting="same_kind")
    else:
        factors.imag = sines
    return factors


def _spread(x, table):
    """How often to repeat each row of a table, and then all of it, to be multiplied with x as it lies in memory.

    Rows, where heads lie inside tokens, as a projection leaves them; all, since NumPy copies what is shorter than its
    buffer again and again. None where the table is to be broadcast instead.
    """
    inside = x.ndim > 2 and not x.flags.c_contiguous and x.swapaxes(-3, -2).flags.c_contiguous
    if table.ndim > 2 or x.size == 0 or not (inside or x.flags.c_contiguous):
        return None
    heads = x.shape[-3] if inside else 1
    size, lanes = heads * table.size, math.prod(x.shape[:-2]) // heads
    enough = 1 << ((BUFFER - 1) // size).bit_length()
    return heads, math.gcd(lanes, enough) if lanes * size >= BUFFER else 1


def _repeated(table, spread):
    if spread is None or spread == (1, 1):
        return table
    heads, repeats = spread
    rows = np.empty((repeats, len(table), heads, table.shape[-1]), table.dtype)
    rows[0] = table[:, None]
    rows[1:] = rows[0]
    return rows


def _product(x, rows, spread):
    """x · rows in an array of its own, arranged like x; complex rows take x's pairs of floats for complex numbers."""
    kind = rows.dtype
    if spread is None:
        out = np.empty((*np.broadcast_shapes(x.shape[:-1], rows.shape[:-1]), x.shape[-1]), x.dtype)
        np.multiply(x.view(kind), rows, out=out.view(kind))
        return out
    if not x.flags.c_contiguous:
        return _product(x.swapaxes(-3, -2), rows, spread).swapaxes(-3, -2)
    length, huge = rows.size, x.nbytes > HUGE
    out = x.copy() if huge else np.empty_like(x)
    items = (out if huge else x).view(kind).reshape(-1, length)
    np.multiply(items, rows.ravel(), out=out.view(kind).reshape(-1, length))
    return out


@functools.cache
def _complex(dtype):
    return np.result_type(dtype, np.complex64)


@functools.cache
def _part(kind):
    return np.empty(0, kind).real.dtype


def _x_rule(out, x, cosines, sines, *, inverse=False, layout="adjacent"):
    return lambda g: rotary_pairs(g, cosines, sines, inverse=not inverse, layout=layout)


def _cosine_rule(out, x, cosines, sines, *, inverse=False, layout="adjacent"):
    a, b = _pairs(as_floats(x), layout)

    def pullback(g):
        ga, gb = _pairs(g, layout)
        return ga * a + gb * b

    return pullback


def _sine_rule(out, x, cosines, sines, *, inverse=False, layout="adjacent"):
    a, b = _pairs(as_floats(x), layout)

    def pullback(g):
        ga, gb = _pairs(g, layout)
        return ga * b - gb * a if inverse else gb * a - ga * b

    return pullback


rotary_pairs.defvjp(_x_rule, _cosine_rule, _sine_rule)


def _pairs(x, layout):
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if layout == "half" else (x[..., 0::2], x[..., 1::2])


def check_layout(layout: str) -> None:
    """RotaryError unless the layout is one of the two."""
    if layout not in ("adjacent", "half"):
        raise RotaryError("unknown-layout", f"layout must be 'adjacent' or 'half', not {layout!r}")


def _check(x, cosines, sines, layout):
    check_layout(layout)
    if x.ndim < 2:
        raise RotaryError(
            "input-rank",
            f"a rotation needs x of shape (..., tokens, width), but x has shape {x.shape}",
        )
    tokens, width = x.shape[-2:]
    if cosines.shape == sines.shape == (tokens, width / 2):
        return
    if width % 2:
        raise RotaryError("odd-feature-width", f"features turn in pairs, so x's width must be even, not {width}")
    for name, table in (("cosines", cosines), ("sines", sines)):
        if table.ndim < 2 or table.shape[-1] * 2 != width:
            raise RotaryError(
                "feature-width-mismatch",
                f"x of width {width} needs {name} of shape (..., tokens, {width // 2}), one per pair, but "
                f"they have shape {table.shape}",
            )
    try:
        fits = cosines.shape == sines.shape and cosines.shape[-2] == tokens
        np.broadcast_shapes(x.shape[:-2], cosines.shape[:-2])
    except ValueError:
        fits = False
    if not fits:
        raise RotaryError(
            "table-shape-mismatch",
            f"cosines {cosines.shape} and sines {sines.shape} must both have a row for each of x's {tokens} tokens, "
            f"and leading axes that broadcast against those of x, whose shape is {x.shape}",
        )
