"""Derivatives by differences: precise where the platform allows it, and honest about their own error.

A function is evaluated on a copy of its inputs in the widest float that it supports (`Evaluator`). Each coordinate gets
central differences at two steps, extrapolated (Richardson); that settles nearly all. A coordinate that does not agree
is looked at again (`refine`): from large steps to small ones, central and from either side, with an error estimate
at each step that can't fall below what rounding does to the function's values.

The rounding of a function is measured, not assumed (`_rounding`): values along a short line are smooth except for it,
so their sixth differences are made of nothing else (Moré and Wild, "Estimating computational noise", 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .subject import Subject

ORDER, PROBES = 6, 11
DIFFERENCE = np.array([(-1) ** k * math.comb(ORDER, k) for k in range(ORDER + 1)])
COARSEST = 2.0**-8  # no floating precision is coarser
FAMILY = 64  # rows evaluated before they are reduced to slopes: more leave the cache when they are stacked


class Slopes(NamedTuple):
    """Directional derivatives of sum(u * f), one per coordinate: value, size of what was summed, error by rounding.

    `suspect` marks coordinates at which the slopes from either side seem to stay apart. `local` is the size of the
    outputs that the coordinate changes, over its own.
    """

    value: np.ndarray
    scale: np.ndarray
    error: np.ndarray
    suspect: np.ndarray
    local: np.ndarray


class Refined(NamedTuple):
    """One derivative with its estimated error; `sides` are the one-sided slopes where they stay apart.

    `unseen` marks outputs that didn't change by a last bit within `reach` of the input, the largest step taken.
    """

    value: float
    scale: float
    error: float
    sides: tuple[float, float] | None = None
    unseen: np.ndarray | None = None
    reach: float = 0.0


class Evaluator:
    """A subject's outputs, as one flat vector, at a copy of its inputs that may be moved in place.

    `u` is the flat cotangent, `start` the outputs at the given inputs, `rounding` each output's error by rounding.
    Outputs that are NaN to begin with are left out. An evaluator `like` one nearby takes its precision and rounding.
    `replay`, where there is one, evaluates what a single leaf reaches (replay.py).
    """

    def __init__(
        self, subject: Subject, cotangents: list[np.ndarray], extended: bool = True, like: Evaluator | None = None
    ):
        self.subject, self.cotangents = subject, cotangents
        self.dtype: np.dtype = like.dtype if like else _widest(subject) if extended else np.dtype(float)
        self.points: tuple[int, ...] = like.points if like else (1, -1, 2, -2) if extended else (1, -1)
        self.leaves = [_copy(x, self.dtype) for x in subject.leaves]
        self.evaluate = subject.bind(self.leaves)
        self.replay: Any = None
        outputs = self.evaluate()
        self.output_epsilon = max((epsilon_of(y) for y in outputs), default=0.0)
        self.start = _flat(outputs)
        self.undefined = np.isnan(self.start) if np.isnan(self.start).any() else None
        self.u = _flat([np.asarray(c, self.dtype) for c in cotangents])
        if self.undefined is not None:
            self.u = np.where(self.undefined, 0, self.u)
            self.start = np.where(self.undefined, 0, self.start)
        self.rounding: np.ndarray = like.rounding if like else _rounding(self)
        self.weighted_rounding = np.abs(self.u) * self.rounding

    def __call__(self) -> np.ndarray:
        return self.flat(self.evaluate())

    def flat(self, outputs: list[np.ndarray]) -> np.ndarray:
        """Outputs as one vector, 0 where they are undefined to begin with."""
        y = _flat(outputs)
        return y if self.undefined is None else np.where(self.undefined, 0, y)

    @property
    def magnitude(self) -> float:
        """sum(|u f|) over the finite outputs: the size of the number whose slopes are taken."""
        return float(np.sum(np.abs(self.u * np.where(np.isfinite(self.start), self.start, 0))))

    def along(self, directions: list[np.ndarray]) -> Callable[[float], np.ndarray]:
        """The outputs as a function of t at inputs + t * directions."""
        starts = [x.copy() for x in self.leaves]

        def values(t: float) -> np.ndarray:
            for x, start, d in zip(self.leaves, starts, directions):
                np.add(start, np.multiply(d, t, dtype=self.dtype), out=x)
            y = self()
            for x, start in zip(self.leaves, starts):
                x[...] = start
            return y

        return values

    def at(self, leaf: int, place: int) -> Callable[[float], np.ndarray]:
        """The outputs as a function of t at inputs of which one coordinate is moved by t."""
        flat = self.leaves[leaf].flat  # in C order whatever the layout, which is kept: a function may depend on it
        start = flat[place]

        def values(t: float) -> np.ndarray:
            flat[place] = start + t
            y = self()
            flat[place] = start
            return y

        return values


def epsilon_of(x: Any) -> float:
    """The epsilon of an array's floating precision."""
    return float(np.finfo(x.dtype).eps)


def _flat(outputs: list[np.ndarray]) -> np.ndarray:
    if len(outputs) == 1:
        return outputs[0].flatten()  # a copy: the output may be a view of the inputs, which will move
    return np.concatenate([y.reshape(-1) for y in outputs]) if outputs else np.zeros(0)


def _copy(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy in the same memory layout, contiguous or not: np.ravel(x, order="A") depends on it, say."""
    if x.flags.forc:
        return np.array(x, dtype, order="K")
    axes = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
    spread = np.zeros((*(x.shape[i] for i in axes), 2), dtype)[..., 0]
    copy = spread.transpose(np.argsort(axes))
    copy[...] = x
    return copy


def _widest(subject: Subject) -> np.dtype:
    """long double if it is wider than float64 and the function really works in it, else float64."""
    wide, plain = np.dtype(np.longdouble), np.dtype(float)
    if np.finfo(np.longdouble).eps >= np.finfo(float).eps:
        return plain
    expected = subject.bind([_copy(x, plain) for x in subject.leaves])()
    try:
        found = subject.bind([_copy(x, wide) for x in subject.leaves])()
    except Exception:  # whatever it is that makes the function refuse long doubles, float64 remains
        return plain
    if [y.shape for y in found] != [y.shape for y in expected] or any(y.dtype != wide for y in found):
        return plain
    close = all(np.allclose(y, z, rtol=1e-3, atol=1e-3, equal_nan=True) for y, z in zip(found, expected))
    return wide if close else plain


def _rounding(evaluator: Evaluator) -> np.ndarray:
    """Each output's error by rounding: at least its precision's epsilon, more if sixth differences say so."""
    y = np.abs(np.where(np.isfinite(evaluator.start), evaluator.start, 0))
    values = evaluator.along(wander(evaluator.leaves, np.random.default_rng(0)))
    found, undecided = np.zeros(y.shape), np.ones(y.shape, bool)
    for spacing in (2.0**-40, 2.0**-20, 2.0**-12):  # the last two for functions that round to less than float64
        rows = np.array([values(k * spacing) for k in range(PROBES)])
        moved = undecided & (np.count_nonzero(np.diff(rows, axis=0), axis=0) >= PROBES // 2)
        found, undecided = np.where(moved, roughness(rows), found), undecided & ~moved
        if not undecided.any():
            break
    known = (found > 0) & (found < COARSEST * y)  # what is nothing but rounding tells nothing of precision
    usual = float(np.median(found[known] / y[known])) if known.any() else 0.0  # one output may look smooth by luck
    return np.maximum(y * max(evaluator.output_epsilon, usual), found)


def roughness(rows: np.ndarray) -> np.ndarray:
    """The size of what isn't smooth in values at equal distances (first axis): sixth differences, scaled."""
    rows = np.where(np.isfinite(rows).all(axis=0), rows, 0)
    differences = np.array([np.tensordot(DIFFERENCE, rows[i : i + ORDER + 1], 1) for i in range(len(rows) - ORDER)])
    return np.max(np.abs(differences), axis=0, initial=0) / math.sqrt(math.comb(2 * ORDER, ORDER))


def wander(leaves: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """A random direction that moves every finite coordinate by half to all of its own size."""
    found = [np.abs(x) * rng.choice([-1.0, 1.0], x.shape) * rng.uniform(0.5, 1, x.shape) for x in leaves]
    return [np.where(np.isfinite(d), d, 0).astype(x.dtype) for d, x in zip(found, leaves)]


def typical(x: np.ndarray) -> float:
    """The size of an array's usual element: what a step is measured against where the element itself is zero."""
    sizes = np.abs(x[np.isfinite(x) & (x != 0)])
    return float(np.median(sizes)) if sizes.size else 1.0


def slopes(evaluator: Evaluator, leaf: int, batched: bool = False) -> Iterator[tuple[slice, Slopes]]:
    """Every coordinate's slope in one leaf, some coordinates at a time.

    In long double or float64 with Richardson extrapolation: steps h and 2h with h = 2^-10 |x|. In a plain float64
    evaluator: one central difference with h = 2^-16 |x|, or a quarter of the usual |x|.
    """
    x = evaluator.leaves[leaf].reshape(-1)
    points = evaluator.points
    size = np.where(x == 0, typical(x), np.abs(x))
    if len(points) == 2:  # one look should do for small numbers among larger ones
        size = np.maximum(size, typical(x) / 4)
    h = np.where(np.isfinite(size), size, 1) * evaluator.dtype.type(2.0 ** (-10 if len(points) == 4 else -16))
    count = max(1, FAMILY // len(points))
    rows_of = _stacked_rows if batched else _rows
    for first in range(0, x.size, count):
        part = slice(first, min(first + count, x.size))
        moved = x[part] + np.array(points, evaluator.dtype)[:, None] * h[part]
        rows = rows_of(evaluator, leaf, part, moved)
        yield part, _reduce(evaluator, x[part], size[part], moved, rows)


def _rows(evaluator: Evaluator, leaf: int, part: slice, moved: np.ndarray) -> np.ndarray:
    """The outputs (points, coordinates, outputs) with each coordinate of `part` moved to each of its points."""
    flat = evaluator.leaves[leaf].flat
    evaluate = evaluator.evaluate if evaluator.replay is None else evaluator.replay.bind([leaf])
    rows = np.empty((*moved.shape, evaluator.u.size), evaluator.dtype)
    for column, place in enumerate(range(part.start, part.stop)):
        start = flat[place]
        for row in range(len(moved)):
            flat[place] = moved[row, column]
            rows[row, column] = evaluator.flat(evaluate())
        flat[place] = start
    return rows


def _stacked_rows(evaluator: Evaluator, leaf: int, part: slice, moved: np.ndarray) -> np.ndarray:
    """The same in one call: all leaves get a leading axis, along which one differs in one coordinate at a time."""
    total, (points, columns) = moved.size, moved.shape
    arrays = [np.broadcast_to(x, (total, *x.shape)) for x in evaluator.leaves]
    arrays[leaf] = arrays[leaf].copy()
    places = np.tile(np.arange(part.start, part.stop), points)
    arrays[leaf].reshape(total, -1)[np.arange(total), places] = moved.reshape(-1)
    return stacked(evaluator, arrays).reshape(points, columns, -1)


def stacked(evaluator: Evaluator, arrays: list[np.ndarray]) -> np.ndarray:
    """The flat outputs (copies, outputs) of arrays that have one more leading axis."""
    outputs = evaluator.subject.bind(arrays)()
    y = np.concatenate([np.reshape(y, (len(arrays[0]), -1)) for y in outputs], axis=1)
    return y if evaluator.undefined is None else np.where(evaluator.undefined, 0, y)


def _reduce(evaluator: Evaluator, x: np.ndarray, size: np.ndarray, moved: np.ndarray, rows: np.ndarray) -> Slopes:
    """Slopes from outputs at the points +h, -h (and +2h, -2h)."""
    start, u, sizes = evaluator.start, evaluator.u, np.abs(evaluator.u)
    ahead, behind = _minus(rows[0], start), _minus(start, rows[1])
    change, span = ahead + behind, _span(moved[0] - moved[1])
    value, scale = change @ u / span, np.abs(change) @ sizes / span
    error = (change != 0) @ evaluator.weighted_rounding * 2 / span
    local = (
        (change != 0) @ (sizes * np.where(np.isfinite(start), np.abs(start), 0)) / np.where(np.isfinite(size), size, 1)
    )
    if len(rows) == 2:
        return Slopes(value, scale, error + np.abs(value) * 2.0**-30, np.zeros(x.shape, bool), local)
    ahead2, behind2 = _minus(rows[2], start), _minus(start, rows[3])
    span2 = _span(moved[2] - moved[3])
    value = (4 * value - (ahead2 + behind2) @ u / span2) / 3
    bend, bend2 = np.abs(ahead - behind) @ sizes / span, np.abs(ahead2 - behind2) @ sizes / span2
    suspect = (bend > 0.7 * bend2) & (bend > 16 * error) & (bend > 1e-7 * scale)
    return Slopes(value, scale, error, suspect, local)


def _span(difference: np.ndarray) -> np.ndarray:
    """The step actually taken; 1 where the coordinate is not finite, so that nothing could be taken."""
    return np.where(np.isfinite(difference), difference, 1)


def _minus(y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """y - z, with 0 for equal infinities."""
    return np.where(y == z, 0, y - z)


class _Level(NamedTuple):
    """The estimates at one step: (value, error) for central, right and left; NaN where undefined."""

    step: float
    central: tuple[float, float]
    right: tuple[float, float]
    left: tuple[float, float]
    scale: float
    noise: float


class _Romberg:
    """Slopes at steps that halve, extrapolated to step 0 (Ridders 1982): errors go with h**power, h**(2 power), …"""

    def __init__(self, power: int, depth: int):
        self.power, self.depth = power, depth
        self.row: list[Any] = []

    def extend(self, slope: Any) -> tuple[float, float]:
        """The best extrapolation that ends with this slope, and how far it is from those that it was made of."""
        row, before = [slope], self.row[: self.depth]
        best = (float("nan"), float("inf"))
        for j, old in enumerate(before):
            factor = 2.0 ** (self.power * (j + 1))
            row.append((factor * row[j] - old) / (factor - 1))
            error = max(abs(row[-1] - row[j]), abs(row[-1] - old))
            if np.isfinite(error) and error < best[1]:
                best = row[-1], float(error)
        self.row = row
        return best


def refine(
    evaluator: Evaluator, values: Callable, origin: float, largest: float, near: float, goal: float, expected: float
) -> Refined:
    """The derivative of sum(u * values(t)) at t = 0 from a ladder of halved steps, from `largest` down.

    `origin` is the coordinate itself, `near` the step below which its own neighbourhood begins. The answer is
    that of the smallest step whose error is within `goal` times the scale, else that of the smallest error. An answer
    that is not the `expected` one is believed only at the bottom of the ladder: from afar a kink nearby looks smooth.
    """
    levels: list[_Level] = []
    tables = _Romberg(2, 5), _Romberg(1, 2), _Romberg(1, 2)
    changed = np.zeros(evaluator.u.shape, bool)
    step, good = _power_of_two(largest), 0
    smallest = near * 2.0 ** (-30 if origin else -110)  # at zero nothing is lost by rounding the coordinate
    while step > smallest:
        ahead, behind = _minus(values(step), evaluator.start), _minus(evaluator.start, values(-step))
        changed |= (ahead != 0) | (behind != 0)
        levels.append(_level(evaluator, ahead, behind, changed, origin, step, tables))
        slope, error = levels[-1].central
        settled = error <= goal * levels[-1].scale and abs(slope - expected) <= 2 * goal * levels[-1].scale
        good = good + 1 if settled and step <= near else 0
        lost = step <= near / 4 and levels[-1].noise > 64 * min(v.central[1] for v in levels)
        if good >= 3 or lost or (step <= near * 2.0**-40 and _sides(levels) is not None):
            break
        step /= 2
    return _choose(levels, goal)._replace(unseen=~changed, reach=_power_of_two(largest))


def refine_coordinate(evaluator: Evaluator, leaf: int, place: int, goal: float, expected: float) -> Refined:
    """One coordinate's derivative, carefully."""
    x = evaluator.leaves[leaf].reshape(-1)
    origin, usual = x[place], typical(x)
    if not np.isfinite(origin):
        return Refined(float("nan"), 0.0, float("inf"))
    near = float(abs(origin)) or usual
    largest = max(near, min(usual, near * 2.0**40))
    return refine(evaluator, evaluator.at(leaf, place), origin, largest, near / 4, goal, expected)


def _power_of_two(x: float) -> float:
    return 2.0 ** math.floor(math.log2(x)) if x > 0 and math.isfinite(x) else 1.0


def _level(
    evaluator: Evaluator,
    ahead: np.ndarray,
    behind: np.ndarray,
    changed: np.ndarray,
    origin: float,
    step: float,
    tables: Any,
) -> _Level:
    wide: Any = evaluator.dtype.type
    u = evaluator.u
    noise = 4 * float(np.sum(evaluator.weighted_rounding[changed])) / step
    forward, backward = (wide(origin) + wide(step)) - wide(origin), wide(origin) - (wide(origin) - wide(step))
    if forward <= 0 or backward <= 0:
        forward = backward = wide("nan")
    slopes = (ahead + behind) @ u / (forward + backward), ahead @ u / forward, behind @ u / backward
    (central, error), (right, error_right), (left, error_left) = (t.extend(x) for t, x in zip(tables, slopes))
    scale = float(np.abs(u) @ np.abs(ahead + behind) / (forward + backward))
    if not np.isfinite(scale):
        scale = float(np.nanmax([abs(right), abs(left), 0]))
    sides = (right, 2 * (error_right + noise)), (left, 2 * (error_left + noise))
    return _Level(step, (central, error + noise), *sides, scale, noise)


def _sides(levels: list[_Level]) -> tuple[float, float] | None:
    """The slopes from the left and the right, if the last two levels that know them well find them apart."""
    known = [v for v in levels if v.right[1] + v.left[1] <= 0.02 * max(abs(v.right[0]), abs(v.left[0]))]
    if len(known) < 3:
        return None
    gaps = [abs(v.right[0] - v.left[0]) for v in known[-3:]]
    apart = all(gap > 8 * (v.right[1] + v.left[1]) for gap, v in zip(gaps, known[-3:]))
    if apart and min(gaps) > 0.9 * max(gaps):
        return float(known[-1].left[0]), float(known[-1].right[0])
    return None


def _choose(levels: list[_Level], goal: float) -> Refined:
    sides = _sides(levels)
    candidates = [(v.step, *v.central, v.scale) for v in levels if np.isfinite(v.central[0])]
    if not candidates:  # at the edge of a domain: what can be known comes from one side
        candidates = [(v.step, *s, v.scale) for v in levels for s in (v.right, v.left) if np.isfinite(s[0])]
    if not candidates:
        return Refined(float("nan"), 0.0, float("inf"))
    precise = [c for c in candidates if c[2] <= goal * c[3]]
    _, value, error, scale = min(precise) if precise else min(candidates, key=lambda c: c[2])
    return Refined(value, scale, error, sides)
