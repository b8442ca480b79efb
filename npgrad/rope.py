"""Rotary position embedding (RoPE): tables of cosines and sines for `rotary_pairs`, and the conventions around them.

A query or key at position m has each pair of its features turned by an angle m·θₖ, θₖ = base^(−2k/d), so that the
product of a query and a key depends on how far apart they are and not on where they stand. Which features form a pair
is the *layout*: (2k, 2k+1), "adjacent", or (k, k + d/2), "half", as in published Llama weights. Moving between the
two is a permutation of features, and so of the rows of the matrices that make queries and keys. *Scaling* methods
change the frequencies, and some a factor on the tables, so that a model reads more text than it was trained on.

Angles are computed in float64 whatever the data's precision, because position·θ needs its digits; tables are
rounded once, to the dtype of what they turn.
"""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .errors import as_integer
from .ops.arrays import as_floats
from .ops.rotary import RotaryError, check_layout, rotary_pairs

DEFAULT_BASE = 10000.0
LAST_OFFSET = 2**64 - 1  # positions are counted in 64 bits, as in a checkpoint or a compiled kernel


class RotaryEmbedding:
    """Rotations for positions 0 to max_positions − 1, from tables that are made and validated once.

    dim is the width of a head. Only its first rotary_dim features turn if that is given; the rest is copied bit for
    bit, and frequencies are those of rotary_dim: θₖ = base^(−2k/rotary_dim). `scaling` is a dict as in a
    checkpoint's rope_scaling or rope_parameters; see `frequencies`. `cosines` and `sines` are read-only float64 tables
    of shape (max_positions, rotary_dim/2), times `attention_factor`; `inverse_frequencies` are the θₖ.

    RotaryError, with nothing allocated: "zero-feature-width", "odd-feature-width", "rotary-width-mismatch",
    "zero-position-capacity", "invalid-base", "table-size-overflow", "non-finite-table-value" (the first in row-major
    order, as `position` and `pair`), "table-allocation-failed"; codes on scaling in `frequencies`. They are checked in
    this order. Source: Su et al., "RoFormer" (arXiv:2104.09864), section 3.2.2.

    >>> rope = RotaryEmbedding(4, max_positions=6, base=100.0)
    >>> rope.inverse_frequencies
    array([1. , 0.1])
    >>> rope.rotate(np.array([[1.0, 0.0, 1.0, 0.0]]), offset=2).round(6)
    array([[-0.416147,  0.909297,  0.980067,  0.198669]])
    """

    def __init__(
        self,
        dim: int,
        max_positions: int,
        base: float = DEFAULT_BASE,
        *,
        layout: str = "adjacent",
        rotary_dim: int | None = None,
        scaling: Mapping[str, Any] | None = None,
    ):
        check_layout(layout)
        self.layout, self.dim = layout, as_integer(dim, "dim")
        self.max_positions = capacity = as_integer(max_positions, "max_positions")
        scaling = _read(scaling)
        self.rotary_dim = _rotary_width(self.dim, rotary_dim, scaling)
        if capacity < 1:
            raise RotaryError("zero-position-capacity", f"a table needs at least one position, not {capacity}")
        base = _base(base, scaling)
        _check_size(capacity, self.rotary_dim // 2)
        self.inverse_frequencies, self.attention_factor = _scaled(self.rotary_dim, base, scaling, capacity)
        _check_finite(capacity, self.inverse_frequencies)
        self.cosines, self.sines = _allocate(capacity, self.rotary_dim // 2)
        np.multiply(np.arange(capacity)[:, None], self.inverse_frequencies, out=self.sines)
        _angles_to_tables(self.cosines, self.sines, self.attention_factor)
        for table in (self.cosines, self.sines, self.inverse_frequencies):
            table.flags.writeable = False

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], max_positions: int | None = None, *, layout: str
    ) -> RotaryEmbedding:
        """The rotations that a checkpoint's config.json asks for, old or new spelling of its keys.

        Reads head_dim (or hidden_size and num_attention_heads), max_position_embeddings, rope_theta,
        partial_rotary_factor, and rope_scaling or rope_parameters, in which the last two may stand too. max_positions
        is max_position_embeddings unless given. Published weights have layout "half". A value of None counts as
        absent. RotaryError as for the class, "missing-config-key" or "invalid-config-value".

        >>> RotaryEmbedding.from_config({"head_dim": 4, "max_position_embeddings": 8}, layout="half").cosines.shape
        (8, 2)
        """
        config = _present(config, "a configuration")
        inner = _present(config.get("rope_parameters") or config.get("rope_scaling"), "rope_parameters or rope_scaling")
        scaling = {**{key: config[key] for key in _COMMON if key in config}, **inner}
        if "head_dim" in config:
            dim = _size(config, "head_dim")
        else:
            dim = _size(config, "hidden_size") // _size(config, "num_attention_heads")
        capacity = _size(config, "max_position_embeddings") if max_positions is None else max_positions
        return cls(dim, capacity, layout=layout, scaling=scaling)

    def rotate(self, x: Any, offset: int = 0, *, positions: Any = None) -> Any:
        """x with each token's pairs turned by its position's angles.

        x is (..., tokens, dim), of floats or a Variable of them. Token t stands at offset + t, which must be in the
        table; or at positions[t], any integers, repeated, unordered, negative or beyond the table (where angles are
        computed for the call, in float64). positions may have leading axes, which are x's first ones: (batch, tokens)
        for x (batch, heads, tokens, dim). Later changes to positions don't reach a recorded rotation.

        RotaryError: "input-rank", "feature-width-mismatch", "position-offset-overflow", "position-range-exceeded",
        "position-shape-mismatch", "non-finite-table-value". An empty interval may start at max_positions.
        """
        x = as_floats(x)
        self._check(x)
        cosines, sines = self.tables(x.shape, offset, positions=positions)
        if self.rotary_dim == self.dim:
            return rotary_pairs(x, cosines, sines, layout=self.layout)
        turned = rotary_pairs(x[..., : self.rotary_dim], cosines, sines, layout=self.layout)
        return np.concatenate([turned, x[..., self.rotary_dim :]], axis=-1)

    def tables(
        self, shape: tuple[int, ...], offset: int = 0, *, positions: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cosines and sines by which `rotate` turns an x of this shape, (..., tokens, dim).

        Both are (tokens, rotary_dim / 2), or have leading axes that broadcast against x's where positions have.

        >>> RotaryEmbedding(2, max_positions=6).tables((2, 2), offset=3)[0].round(6)
        array([[-0.989992],
               [-0.653644]])
        """
        if positions is None:
            return self._interval(as_integer(offset, "offset"), shape[-2])
        if offset:
            raise TypeError("rotate takes an offset or positions, not both: add the offset to the positions")
        return self._at(_aligned(positions, shape))

    def _check(self, x):
        if x.ndim < 2:
            raise RotaryError(
                "input-rank", f"rotate needs x of shape (..., tokens, {self.dim}), but x has shape {x.shape}"
            )
        if x.shape[-1] != self.dim:
            raise RotaryError(
                "feature-width-mismatch",
                f"x has shape {x.shape}, but this table is for heads of width {self.dim}: reshape x to "
                f"(..., tokens, {self.dim})",
            )

    def _interval(self, offset, tokens):
        if offset + tokens > LAST_OFFSET:
            raise RotaryError(
                "position-offset-overflow",
                f"an offset of {offset} with {tokens} tokens passes the last position that 64 bits can count",
            )
        if offset < 0 or offset + tokens > self.max_positions:
            raise RotaryError(
                "position-range-exceeded",
                f"positions {offset} to {offset + tokens} (exclusive) are not all in a table of {self.max_positions}: "
                "make it with a larger max_positions, or pass positions=",
            )
        return self.cosines[offset : offset + tokens], self.sines[offset : offset + tokens]

    def _at(self, positions):
        if positions.size == 0 or (positions.min() >= 0 and positions.max() < self.max_positions):
            return self.cosines[positions], self.sines[positions]
        angles = _angles(positions, self.inverse_frequencies)
        cosines = np.empty_like(angles)
        _angles_to_tables(cosines, angles, self.attention_factor)
        return cosines, angles


def adjacent_to_half(weight: Any, head_dim: int | None = None, *, rotary_dim: int | None = None, axis: int = 0) -> Any:
    """Reorder features, within each head, from the adjacent layout to the half layout.

    `axis` of weight holds heads · head_dim features, one head after the other; head_dim is its length unless given.
    For a projection stored (features, hidden), as in published checkpoints, axis is 0; for x @ w with w
    (hidden, features) it is −1, as for queries and keys themselves. Rotating commutes with it:
    half(adjacent_to_half(x)) = adjacent_to_half(adjacent(x)). Permute queries and keys, each with their own number
    of heads, but not values, nor the output projection. Of each head only the first rotary_dim features move, if
    that is given. RotaryError for widths that don't fit.

    >>> adjacent_to_half(np.arange(12.0), head_dim=6)
    array([ 0.,  2.,  4.,  1.,  3.,  5.,  6.,  8., 10.,  7.,  9., 11.])
    """
    return _permuted(weight, head_dim, rotary_dim, axis, lambda pairs: pairs.reshape(-1, 2).T)


def half_to_adjacent(weight: Any, head_dim: int | None = None, *, rotary_dim: int | None = None, axis: int = 0) -> Any:
    """Reorder features, within each head, from the half layout to the adjacent layout: undoes `adjacent_to_half`.

    >>> half_to_adjacent(np.array([0.0, 2.0, 4.0, 1.0, 3.0, 5.0]))
    array([0., 1., 2., 3., 4., 5.])
    """
    return _permuted(weight, head_dim, rotary_dim, axis, lambda halves: halves.reshape(2, -1).T)


def add_sinusoidal_position(x: Any, offset: int = 0, *, base: float = DEFAULT_BASE) -> Any:
    """x[2k] + sin(m·θₖ), x[2k+1] + cos(m·θₖ), θₖ = base^(−2k/width), at row position m: what came before rotations.

    x is (..., tokens, width), of floats or a Variable; token t stands at offset + t. Unlike a rotation this changes
    lengths, and a score depends on where tokens stand, not only on their distance. RotaryError as for a table.
    Source: Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), section 3.5.

    >>> add_sinusoidal_position(np.zeros((2, 2)), offset=1).round(6)
    array([[ 0.841471,  0.540302],
           [ 0.909297, -0.416147]])
    """
    x, offset = as_floats(x), as_integer(offset, "offset")
    if x.ndim < 2:
        raise RotaryError("input-rank", f"x must have shape (..., tokens, width), but has shape {x.shape}")
    tokens = x.shape[-2]
    if not -(2**63) <= offset <= LAST_OFFSET - tokens:
        raise RotaryError(
            "position-offset-overflow", f"positions {offset} to {offset + tokens} can't all be counted in 64 bits"
        )
    counted = np.uint64 if offset > 0 else np.int64
    angles = _angles(counted(offset) + np.arange(tokens, dtype=counted), frequencies(x.shape[-1], base)[0])
    return x + np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(x.shape[-2:]).astype(x.dtype)


def _permuted(weight, head_dim, rotary_dim, axis, reorder):
    length = np.shape(weight)[axis]
    head_dim = length if head_dim is None else as_integer(head_dim, "head_dim")
    width = _rotary_width(head_dim, rotary_dim, {})
    if length % head_dim:
        raise RotaryError(
            "feature-width-mismatch", f"axis {axis} has {length} features, which are not whole heads of {head_dim}"
        )
    features = np.arange(length).reshape(-1, head_dim)
    features[:, :width] = features[:, reorder(np.arange(width)).ravel()]
    return np.take(weight, features.ravel(), axis=axis)


def _rotary_width(dim, rotary_dim, scaling):
    """How many features turn; RotaryError unless they are an even number, and at most dim."""
    if rotary_dim is None and scaling.get("rope_type") != "proportional":
        share = _positive(scaling, "partial_rotary_factor", 1.0)
        rotary_dim = int(dim * min(share, 1e9))  # which is too large anyhow, and no infinity
    width = dim if rotary_dim is None else as_integer(rotary_dim, "rotary_dim")
    for what, size in (("dim", dim), ("rotary_dim", width)):
        if size < 1:
            raise RotaryError("zero-feature-width", f"{what} must be at least 2, not {size}: there is nothing to turn")
        if width % 2 and size == width:
            raise RotaryError("odd-feature-width", f"features turn in pairs, so {what} must be even, not {size}")
    if width > dim:
        raise RotaryError("rotary-width-mismatch", f"rotary_dim {width} exceeds the {dim} features of a head")
    return width


def _aligned(positions, shape):
    """positions with axes of length 1 for the axes of x between its first ones and its tokens."""
    positions = np.asarray(positions)
    if positions.dtype.kind not in "iu":
        if positions.size:
            raise TypeError(f"positions must be integers, not {positions.dtype}")
        positions = positions.astype(int)  # np.array([]) is of floats, but holds none
    lead, tokens = positions.shape[:-1], shape[-2]
    fits = positions.ndim >= 1 and positions.shape[-1] == tokens and len(lead) <= len(shape) - 2
    if not fits or any(n not in (1, of_x) for n, of_x in zip(lead, shape)):
        raise RotaryError(
            "position-shape-mismatch",
            f"positions of shape {positions.shape} don't fit x of shape {shape}: they must be ({tokens},), or "
            f"{(*shape[:1], tokens)} with a row for each row of x's first axis",
        )
    between = (1,) * (len(shape) - 2 - len(lead))
    return positions.reshape(*lead, *between, tokens)


def _angles(positions, theta):
    """position · θ, with a last axis for the pairs; RotaryError unless all are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        angles = positions[..., None] * theta
    if not np.isfinite(angles).all():
        *row, pair = np.argwhere(~np.isfinite(angles))[0]
        raise _non_finite(int(positions[tuple(row)]), int(pair))
    return angles


def _angles_to_tables(cosines, sines, factor):
    """Turn angles, which stand in `sines`, into both tables, in place."""
    np.cos(sines, out=cosines)
    np.sin(sines, out=sines)
    if factor != 1:
        cosines *= factor
        sines *= factor


def _check_size(capacity, pairs):
    if capacity * pairs > sys.maxsize:
        raise RotaryError(
            "table-size-overflow", f"a table of {capacity} positions by {pairs} pairs is too large to be represented"
        )


def _check_finite(capacity, theta):
    """RotaryError unless all angles of a table are finite, without making it."""
    with np.errstate(over="ignore", invalid="ignore"):
        suspects = np.flatnonzero(~np.isfinite(theta) | ~np.isfinite((capacity - 1) * theta))
    firsts = []
    for pair in suspects.tolist():
        speed = float(theta[pair])
        # Angles grow with the position, and 0 · inf is NaN, so the first that is not finite is found by bisection.
        position = bisect.bisect_left(range(capacity), True, key=lambda m: not math.isfinite(m * speed))
        firsts.append((position, pair))
    if firsts:
        raise _non_finite(*min(firsts))


def _non_finite(position, pair):
    message = f"the angle of position {position} and pair {pair} is not a finite number: use a larger base"
    return RotaryError("non-finite-table-value", message, position, pair)


def _allocate(capacity, pairs):
    try:
        return np.empty((capacity, pairs)), np.empty((capacity, pairs))
    except (MemoryError, ValueError):
        raise RotaryError(
            "table-allocation-failed", f"there is no memory for two tables of {capacity} positions by {pairs} pairs"
        ) from None


class _Method(NamedTuple):
    """A scaling method: its function, and the keys that it needs and knows beside `_COMMON`."""

    function: Callable[..., tuple[np.ndarray, float]]
    needed: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_COMMON = (
    "rope_type",
    "rope_theta",
    "partial_rotary_factor",
    "max_position_embeddings",
    "original_max_position_embeddings",
)


def frequencies(
    rotary_dim: int, base: float, scaling: Mapping[str, Any] | None = None, *, max_positions: int = 1
) -> tuple[np.ndarray, float]:
    """The inverse frequencies (rotary_dim/2,) in float64, and the factor on cosines and sines.

    `scaling` has the keys of a checkpoint's rope_scaling or rope_parameters: "rope_type" (or "type") and what that
    needs; "rope_theta" takes the place of base, "partial_rotary_factor" of RotaryEmbedding's rotary_dim.

    - "default": θₖ = base^(−2k/d).
    - "linear": θₖ / factor (Chen et al., arXiv:2306.15595).
    - "dynamic": a larger base for sequences longer than max_position_embeddings ("NTK"; Peng et al., arXiv:2309.00071).
    - "yarn": slow pairs divided by factor, fast ones not, a ramp between them (the same paper).
    - "longrope": a divisor per pair, for short or for long sequences (Ding et al., arXiv:2402.13753).
    - "llama3": slow pairs divided by factor, a smooth passage by wavelength (Dubey et al., arXiv:2407.21783).
    - "proportional": the frequencies of the whole head for the first pairs, 0 for the others, which don't turn.

    "dynamic" and "longrope" depend on the length of the sequence. Here that is max_positions: a table is made for
    sequences that fill it. Systems that switch while they generate need one object per length.
    RotaryError: "unknown-scaling-type", "unknown-scaling-key", "missing-scaling-key", "invalid-scaling-value", and
    those on the width and the base.

    >>> frequencies(4, 100.0, {"type": "linear", "factor": 2.0})
    (array([0.5 , 0.05]), 1.0)
    """
    scaling = _read(scaling)
    width = _rotary_width(rotary_dim, rotary_dim, scaling)
    return _scaled(width, _base(base, scaling), scaling, max_positions)


def _present(given, what):
    """The entries that have a value, as a new dict."""
    if not isinstance(given, Mapping) and given is not None:
        raise RotaryError("invalid-config-value", f"{what} must be a dict, or None, not {given!r}")
    return {key: value for key, value in (given or {}).items() if value is not None}


def _read(scaling):
    """A scaling dict in the new spelling, its keys and type checked."""
    scaling = _present(scaling, "scaling")
    kind = scaling.pop("type", "default")
    kind = scaling.setdefault("rope_type", kind)
    if not isinstance(kind, str) or kind not in _METHODS:
        raise RotaryError("unknown-scaling-type", f"unknown scaling type {kind!r}: known are {', '.join(_METHODS)}")
    method = _METHODS[kind]
    for key in scaling:
        if key not in (*_COMMON, *method.needed, *method.known):
            known = ", ".join((*method.needed, *method.known)) or "none"
            raise RotaryError(
                "unknown-scaling-key", f"unknown key {key!r} for scaling type {kind!r}, whose own keys are: {known}"
            )
    for key in method.needed:
        if key not in scaling:
            raise RotaryError("missing-scaling-key", f"scaling type {kind!r} needs {key!r}")
    return scaling


def _base(base, scaling):
    """The base that counts, rope_theta if there is one."""
    given = (base, scaling.get("rope_theta", base))
    base, theta = (_above_zero(value) for value in given)
    if base is None or theta is None:
        wrong = given[base is not None]
        raise RotaryError("invalid-base", f"base must be a finite number above 0, not {wrong!r}")
    if base not in (DEFAULT_BASE, theta):
        raise RotaryError("invalid-base", f"base is {base}, but the scaling's rope_theta is {theta}: give one of them")
    return theta


def _scaled(width, base, scaling, length):
    """Inverse frequencies and attention factor for a scaling dict that `_read` has checked."""
    try:
        with np.errstate(all="ignore"):  # the caller names what isn't finite
            return _METHODS[scaling["rope_type"]].function(width, base, length, scaling)
    except RotaryError:
        raise
    except (ArithmeticError, ValueError) as error:  # of numbers near the ends of what a float can be
        raise RotaryError("invalid-scaling-value", f"the scaling {scaling!r} can't be computed: {error}") from error


def _plain(width, base):
    if not math.isfinite(base):
        raise OverflowError("the base becomes infinite")
    return np.float64(base) ** (-np.arange(0, width, 2) / width)


def _default(width, base, length, scaling):
    return _plain(width, base), 1.0


def _linear(width, base, length, scaling):
    return _plain(width, base) / _positive(scaling, "factor"), 1.0


def _dynamic(width, base, length, scaling):
    if width == 2:  # a single pair turns at speed 1 whatever the base
        return _plain(width, base), 1.0
    trained, factor = _trained(scaling, length), _positive(scaling, "factor")
    stretch = factor * max(length, trained) / trained - (factor - 1)
    return _plain(width, base * stretch ** (width / (width - 2))), 1.0


def _yarn(width, base, length, scaling):
    original, factor = _original(scaling, length), _positive(scaling, "factor")
    fast, slow = _positive(scaling, "beta_fast", 32.0), _positive(scaling, "beta_slow", 1.0)
    if base == 1:
        raise RotaryError("invalid-base", "yarn needs a base other than 1: with that one all pairs turn alike")

    def pair_of(turns):  # the pair, as a real number, that turns so often over the original length
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(fast), pair_of(slow)
    truncate = scaling.get("truncate", True)
    if not isinstance(truncate, (bool, np.bool)):
        raise RotaryError("invalid-scaling-value", f"'truncate' must be True or False, not {truncate!r}")
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = np.clip((np.arange(width // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    theta = _plain(width, base)
    attention = _positive(scaling, "attention_factor", _yarn_attention(factor, scaling))
    return theta / factor * ramp + theta * (1 - ramp), attention


def _yarn_attention(factor, scaling):
    def grown(by):
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    names = [name for name in ("mscale", "mscale_all_dim") if not _is_zero(scaling.get(name, 0))]  # 0 is none
    scales = [_positive(scaling, name) for name in names]
    return grown(scales[0]) / grown(scales[1]) if len(scales) == 2 else grown(1.0)


def _longrope(width, base, length, scaling):
    original, divisors = _original(scaling, length), {}
    for name in ("short_factor", "long_factor"):
        given = scaling[name]
        found = [_above_zero(value) for value in given] if isinstance(given, (list, tuple, np.ndarray)) else []
        if len(found) != width // 2 or None in found:
            raise RotaryError(
                "invalid-scaling-value", f"{name!r} must be {width // 2} numbers above 0, one for each pair"
            )
        divisors[name] = np.array(found)
    factor = _positive(scaling, "factor", _trained(scaling, length) / original)
    if "attention_factor" in scaling:
        attention = _positive(scaling, "attention_factor")
    elif factor > 1 and original <= 1:
        raise RotaryError(
            "invalid-scaling-value", f"longrope needs an original_max_position_embeddings above 1, not {original}"
        )
    else:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return _plain(width, base) / divisors["long_factor" if length > original else "short_factor"], attention


def _llama3(width, base, length, scaling):
    low, high = _positive(scaling, "low_freq_factor"), _positive(scaling, "high_freq_factor")
    if high <= low:
        raise RotaryError("invalid-scaling-value", f"high_freq_factor {high} must exceed low_freq_factor {low}")
    theta = _plain(width, base)
    turns = _original(scaling, length) * theta / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return theta * (kept + (1 - kept) / _positive(scaling, "factor")), 1.0


def _proportional(width, base, length, scaling):
    turning = int(width * _positive(scaling, "partial_rotary_factor", 1.0)) // 2
    return np.where(np.arange(width // 2) < turning, _plain(width, base), 0.0), 1.0


_METHODS = {
    "default": _Method(_default),
    "linear": _Method(_linear, ("factor",)),
    "dynamic": _Method(_dynamic, ("factor",)),
    "yarn": _Method(
        _yarn, ("factor",), ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate")
    ),
    "longrope": _Method(_longrope, ("short_factor", "long_factor"), ("factor", "attention_factor")),
    "llama3": _Method(_llama3, ("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": _Method(_proportional),
}


def _above_zero(value):
    """value as a float if it is a finite number above 0, otherwise None."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, (bool, np.timedelta64)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if 0 < value <= sys.float_info.max else None


def _is_zero(value):
    return isinstance(value, (int, float, np.integer, np.floating)) and value == 0


def _positive(scaling, key, default=None):
    """A value that must be a finite number above 0, as a float."""
    value = scaling.get(key, default)
    found = _above_zero(value)
    if found is None:
        raise RotaryError("invalid-scaling-value", f"{key!r} must be a finite number above 0, not {value!r}")
    return found


def _size(config, key):
    """A value that must be an integer above 0."""
    if key not in config:
        raise RotaryError("missing-config-key", f"a configuration needs {key!r}, and this one has none")
    value = config[key]
    if not isinstance(value, (int, np.integer)) or isinstance(value, (bool, np.timedelta64)) or value < 1:
        raise RotaryError("invalid-config-value", f"{key!r} must be an integer above 0, not {value!r}")
    return int(value)


def _trained(scaling, length):
    """The length that the model was trained for, after scaling."""
    return _positive(scaling, "max_position_embeddings", length)


def _original(scaling, length):
    """The length that the model was trained for, before scaling."""
    return _positive(scaling, "original_max_position_embeddings", _trained(scaling, length))
