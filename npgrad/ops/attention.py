"""Scaled dot-product attention, causal by default, with grouped key/value heads.

The fused form works tile by tile: a block of queries with all the keys that one of them may see. What a causal mask
hides from the whole block is never computed, and a tile stays in cache. Grouped heads fold into the queries, so that
no key is repeated. In long sequences the weights are not kept: the pullback computes each tile's again, and memory
grows linearly with the number of tokens (Rabe & Staats, arXiv:2112.05682; Dao et al., "FlashAttention",
arXiv:2205.14135, whose running maximum is not needed here, as a tile holds whole rows).
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, NamedTuple

import numpy as np

from ..fused import fused
from .arrays import as_floats, as_same_floats, half_in_single
from .mask import check_window, visible_keys
from .softmax import exp_and_sum, in_range, row_sums, softmax


@half_in_single
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
    mask = _checked(q, k, v, causal, offset, mask, window)
    heads, queries, width = q.shape[-3:]
    shared, keys = k.shape[-3:-1]
    q = np.reshape(q, (*q.shape[:-3], shared, heads // shared, queries, width))
    k, v = np.expand_dims(k, -3), np.expand_dims(v, -3)  # one key/value head for each group of queries' heads
    scores = np.matmul(q * _scale(scale, width), np.swapaxes(k, -1, -2))
    for visible in (visible_keys(queries, keys, offset, window) if causal else None, mask):
        if visible is not None:
            scores = np.where(visible, scores, np.asarray(-np.inf, scores.dtype))
    out = np.matmul(softmax(scores), v)
    return np.reshape(out, (*out.shape[:-4], heads, queries, v.shape[-1]))


@fused(attention)  # type: ignore[no-redef]
@half_in_single
def attention(q, k, v, *, causal=True, offset=None, mask=None, window=None, scale=None):
    q, k, v = as_same_floats(q, k, v)
    mask = _checked(q, k, v, causal, offset, mask, window)
    heads, queries, width = q.shape[-3:]
    shared, keys, value_width = v.shape[-3:]
    if causal:
        offset = keys - queries if offset is None else operator.index(offset)
    scale = _scale(scale, width)

    # All leading axes as one, and heads as (shared, group): views, unless an argument broadcasts.
    batch = _broadcast(*(a.shape[:-3] for a in (q, k, v)), *([] if mask is None else [mask.shape[:-4]]))
    q5 = _batched(q, batch, (shared, heads // shared, queries, width))
    k4, v4 = _batched(k, batch, (shared, keys, width)), _batched(v, batch, (shared, keys, value_width))
    masks = None if mask is None else _Masks(mask, batch)
    tiles = _tiles(q5.shape, keys, offset, window)
    alone = len(tiles) == 1 and tiles[0].size == math.prod(q5.shape[:-1]) * keys  # one tile is all: nothing to add to
    new = functools.partial(np.empty_like if alone else np.zeros_like, subok=False)  # in memory, for one in a file
    out = new(q5, shape=(*q5.shape[:-1], value_width))

    def weights(tile):
        """The scaled queries of a tile as rows, exp of their scores up to a factor per row, and its sums."""
        rows = _rows(q5, tile) * scale
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.matmul(rows, k4[tile.b, tile.h, tile.keys].swapaxes(-1, -2))
            e = np.exp(scores, out=scores)
            _hide(e, tile, offset, window, masks, 0)
            total = row_sums(e)
        if not in_range(total):  # overflow, underflow or nothing to see: once more, shifted by the rows' maxima
            scores = np.matmul(rows, k4[tile.b, tile.h, tile.keys].swapaxes(-1, -2))
            _hide(scores, tile, offset, window, masks, -np.inf)
            e, total, _ = exp_and_sum(scores)
            total += total == 0
        return rows, e, total

    kept: list | None = [] if sum(tile.size for tile in tiles) <= KEPT else None
    for tile in tiles:
        found = weights(tile)
        _, e, total = found
        _set_rows(np.divide, out, tile, np.matmul(e, v4[tile.b, tile.h, tile.keys]), total)
        if kept is not None:
            kept.append(found)

    def pullback(g):
        g5 = g.reshape(out.shape)
        dq, dk, dv = new(q5), new(k4), new(v4)
        for i, tile in enumerate(tiles):
            rows, e, total = weights(tile) if kept is None else kept[i]
            at = tile.b, tile.h, tile.keys
            gs = _rows(g5, tile) / total
            d = np.matmul(gs, v4[at].swapaxes(-1, -2))
            d -= np.vecdot(gs, _rows(out, tile))[..., None]
            d *= e
            _add_product(dv[at], e.swapaxes(-1, -2), gs, alone)
            _add_product(dk[at], d.swapaxes(-1, -2), rows, alone)
            _set_rows(np.multiply, dq, tile, np.matmul(d, k4[at]), scale)
        return tuple(d.reshape(*batch, *a.shape[-3:]) for d, a in ((dq, q), (dk, k), (dv, v)))

    return out.reshape(*batch, heads, queries, value_width), pullback


KEPT = 2**22  # above so many weights the pullback computes them again: memory stays linear in tokens
TILE = 2**17  # weights that are worked on at a time: few enough to stay in cache
ROWS = 64  # queries in a tile of a causal mask, which skips the keys after the last one


class _Tile(NamedTuple):
    """A piece of the weights: batches, shared heads, and the queries with all the keys that one of them may see."""

    b: slice
    h: slice
    queries: slice
    keys: slice
    size: int


@functools.lru_cache(maxsize=64)
def _tiles(shape, keys, offset, window):
    """Tiles that cover what the causal mask leaves; offset None: no mask."""
    batches, shared, group, queries, _ = shape
    if 0 in (batches, shared, group, queries, keys):
        return []
    tiles = []
    step = min(queries, max(1, TILE // (keys * group)) if offset is None else ROWS)
    heads = min(shared, max(1, TILE // (group * step * keys)))
    count = min(batches, max(1, TILE // (group * step * keys * shared)))
    for t in range(0, queries, step):
        end, first, last = min(t + step, queries), 0, keys
        if offset is not None:
            last = min(keys, offset + end)
            first = 0 if window is None else max(0, offset + t - window + 1)
        if first < last:
            for b in range(0, batches, count):
                for h in range(0, shared, heads):
                    size = count * heads * group * (end - t) * (last - first)
                    where = slice(b, b + count), slice(h, h + heads), slice(t, end), slice(first, last)
                    tiles.append(_Tile(*where, size))
    return tiles


def _rows(x, tile):
    """A tile's part of (batch, shared, group, queries, width), the group and the queries as one axis."""
    part = x[tile.b, tile.h, :, tile.queries]
    return part.reshape(*part.shape[:2], part.shape[2] * part.shape[3], part.shape[-1])


def _set_rows(operation, x, tile, rows, by):
    """Put operation(rows, by) where `_rows` has them from."""
    part = x[tile.b, tile.h, :, tile.queries]
    by = by.reshape(*part.shape[:-1], 1) if type(by) is np.ndarray else by
    operation(rows.reshape(part.shape), by, out=part)


def _add_product(total, a, b, alone):
    if alone:  # there is nothing in it
        np.matmul(a, b, out=total)
    else:
        total += np.matmul(a, b)


def _hide(rows, tile, offset, window, masks, value):
    """Put value, 0 or −inf, wherever a query of the tile may not see a key; infinities may become NaN with 0."""
    part = rows.reshape(*rows.shape[:2], -1, tile.queries.stop - tile.queries.start, rows.shape[-1])
    if offset is not None:
        start = 0 if window is not None else max(0, offset + tile.queries.start + 1 - tile.keys.start)
        near = part[..., start:]  # the keys before these are seen by all
        first = offset + tile.queries.start - tile.keys.start - start
        visible = _visible(near.shape[-2], near.shape[-1], first, window, rows.dtype)
        if value == 0:
            near *= visible  # a third of what assigning takes
        else:
            np.copyto(near, value, where=visible == 0)
    if masks is not None:
        np.copyto(part, value, where=~masks.part(tile))


@functools.lru_cache(maxsize=16)
def _visible(queries, keys, offset, window, dtype):
    visible = visible_keys(queries, keys, offset, window).astype(dtype)
    visible.flags.writeable = False
    return visible


class _Masks:
    """The boolean mask by tile: (batch, shared or 1, group or 1, queries or 1, keys or 1), nothing of it repeated.

    A copy: the pullback may need it, and a batch may be filled again before the sweep.
    """

    def __init__(self, mask, batch):
        mask = mask[tuple(slice(None, None if stride else 1) for stride in mask.strides)].copy()
        own = mask.shape[:-4]
        self.mask = mask.reshape(math.prod(own), *mask.shape[-4:])
        self.index = np.broadcast_to(np.arange(math.prod(own)).reshape(own), batch).reshape(-1)

    def part(self, tile):
        _, shared, _, queries, keys = self.mask.shape
        h = tile.h if shared > 1 else slice(None)
        t, s = tile.queries if queries > 1 else slice(None), tile.keys if keys > 1 else slice(None)
        return self.mask[self.index[tile.b], h, :, t, s]


def _broadcast(*shapes):
    return shapes[0] if len(set(shapes)) == 1 else np.broadcast_shapes(*shapes)


def _batched(x, batch, shape):
    if x.shape[:-3] != batch:
        x = np.broadcast_to(x, (*batch, *x.shape[-3:]))
    return x.reshape(math.prod(batch), *shape)


def _scale(scale, width):
    return 1 / math.sqrt(max(width, 1)) if scale is None else float(scale)


def _checked(q, k, v, causal, offset, mask, window):
    """The mask with axes (..., shared, group, queries, keys), or None; an error if something doesn't fit."""
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ValueError(f"attention needs q, k and v of shape (..., heads, tokens, width), not {_shapes(q, k, v)}")
    (heads, queries, width), (shared, keys, _) = q.shape[-3:], k.shape[-3:]
    if k.shape[-1] != width or v.shape[-3:-1] != (shared, keys):
        raise ValueError(
            f"q and k must have one width, k and v the same heads and tokens, but q, k and v are {_shapes(q, k, v)}"
        )
    try:
        _broadcast(*(a.shape[:-3] for a in (q, k, v)))
    except ValueError:
        raise ValueError(f"the axes of q, k and v before the last three must broadcast: {_shapes(q, k, v)}") from None
    if shared == 0 or heads % shared:
        raise ValueError(f"{heads} query heads can't share {shared} key/value heads: give a multiple of them")
    if not causal and (offset is not None or window is not None):
        raise ValueError("offset and window belong to the causal mask: leave them out with causal=False")
    if window is not None:
        check_window(window)
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean, True where a key is visible, not {mask.dtype}")
    last = (heads, queries, keys)
    if any(n not in (1, m) for n, m in zip(mask.shape[::-1], last[::-1])):
        raise ValueError(
            f"a mask of shape {mask.shape} must broadcast against (..., heads, queries, keys), which end here in {last}"
        )
    mask = mask.reshape((1,) * (3 - mask.ndim) + mask.shape)
    split = (1, 1) if mask.shape[-3] == 1 else (shared, heads // shared)
    return mask.reshape(*mask.shape[:-3], *split, *mask.shape[-2:])


def _shapes(*arrays):
    return ", ".join(str(a.shape) for a in arrays)
