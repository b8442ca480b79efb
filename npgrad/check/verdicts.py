"""From two numbers, the pullback's and the differences', to one of four verdicts.

Both sides err by rounding, and neither may hide behind a generous tolerance. The pullback's allowance is a few
eps**(2/3) of its own precision, times the size of what was summed, and what the gradient itself moves by when the
inputs and the cotangent move by their last bits (`Pulled.moves`). The differences' allowance is their error estimate.
If they differ by more than both: fail. If they agree but the estimate is too coarse to mean much: inconclusive.
Where the one-sided slopes stay apart, any value between them is accepted: non-smooth.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .differences import Evaluator, Refined, epsilon_of, refine_coordinate, roughness, slopes, typical, wander
from .outputs import ByOutput
from .subject import Subject

PASS, NON_SMOOTH, INCONCLUSIVE, FAIL, UNCHECKED = range(5)
NAMES = ("pass", "non-smooth", "inconclusive", "fail", "unchecked")
MOST_REFINED_FAILURES = 16  # in one leaf; the rest is judged by the first estimate


class Coordinates(NamedTuple):
    """One leaf's coordinates: both values, the estimated error of the differences, and the verdicts.

    `scale` is the size of what was summed, `size` that and what else the allowed error is relative to.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    analytic: np.ndarray
    numeric: np.ndarray
    error: np.ndarray
    scale: np.ndarray
    size: np.ndarray
    verdicts: np.ndarray
    slopes: dict[int, tuple[float, float]]

    def count(self, verdict: int) -> int:
        return int(np.count_nonzero(self.verdicts == verdict))


class Tolerance(NamedTuple):
    """What is allowed to the pullback at one leaf, and the sizes that judgements are relative to."""

    relative: float
    coarse: float
    sensitivity: np.ndarray
    largest: float
    negligible: np.ndarray
    rounding: np.ndarray
    underflow: float
    plain: bool = False

    def allowance(self, i: int | slice, scale: np.ndarray) -> np.ndarray:
        """How far the analytic value may be from the truth."""
        cap = np.maximum(100 * self.relative * self.largest, self.negligible[i])
        moved = np.minimum(8 * self.sensitivity[i], cap)
        return self.relative * scale + moved + self.rounding[i] + self.underflow


def working_epsilon(subject: Subject, outputs: list, evaluator: Evaluator) -> float:
    """The coarsest precision at work on the analytic side: of inputs, outputs, or hidden inside the function.

    A value that is next to nothing, by cancellation, is all rounding and tells of no hidden precision; and nothing that
    is coarser than float16 is one.
    """
    declared = max((epsilon_of(x) for x in (*subject.leaves, *outputs)), default=0.0)
    double = float(np.finfo(float).eps)
    magnitude = max(evaluator.magnitude, double**0.5 * float(np.sum(np.abs(evaluator.u))))
    hidden = float(np.sum(evaluator.weighted_rounding)) / magnitude if magnitude else 0.0
    return max(declared, min(hidden, float(np.finfo(np.float16).eps)) if hidden > 16 * double else 0.0)


class Pulled:
    """What a subject's pullback says to some cotangents, and how far rounding may carry it from the truth."""

    def __init__(self, subject: Subject, cotangents: list[np.ndarray], epsilon: float, seed: int):
        self.subject, self.cotangents, self.epsilon, self.seed = subject, cotangents, epsilon, seed
        self.gradients = [np.array(g) for g in subject.vjp(subject.leaves)[1]([c.copy() for c in cotangents])]

    @functools.cached_property
    def moves(self) -> list[np.ndarray]:
        """What rounding does to each gradient: how it moves when inputs and cotangents move by their last bits, and
        how far from smooth it is along a line."""
        rng = np.random.default_rng(self.seed)
        leaves, epsilon = self.subject.leaves, self.epsilon

        def at(leaves: list, cotangents: list) -> list:
            found = self.subject.vjp(leaves)[1](cotangents)
            return [np.where(np.isfinite(g), g, 0).astype(float) for g in found]

        def jitter(x: np.ndarray) -> np.ndarray:
            return np.asarray(x * (1 + 2 * epsilon * rng.normal(size=x.shape)), x.dtype)

        base = [np.where(np.isfinite(g), g, 0).astype(float) for g in self.gradients]
        found = [np.zeros(g.shape) for g in base]
        for _ in range(3):
            moved = at([*map(jitter, leaves)], [*map(jitter, self.cotangents)])
            found = [np.fmax(d, np.abs(m - g)) for d, m, g in zip(found, moved, base)]
        directions, spacing = wander(leaves, rng), epsilon**0.25  # so that sixth powers don't show
        line = []
        for k in range(8):
            moved = [x + np.asarray(k * spacing, x.dtype) * d for x, d in zip(leaves, directions)]
            line.append(at(moved, [c.copy() for c in self.cotangents]))
        return [np.fmax(d, roughness(np.array(rows))) for d, rows in zip(found, zip(*line))]


def judge_leaf(
    evaluator: Evaluator,
    leaf: int,
    pulled: Pulled,
    batched: bool = False,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Coordinates]:
    """One leaf's verdicts: yields the record at the start, and again when it has been filled in."""
    x, analytic = evaluator.subject.leaves[leaf], pulled.gradients[leaf]
    n, a = analytic.size, np.asarray(analytic, evaluator.dtype).reshape(-1)
    result = Coordinates(
        evaluator.subject.paths[leaf], analytic.shape, x.dtype, a, np.full(n, np.nan, evaluator.dtype),
        np.full(n, np.inf), np.zeros(n), np.zeros(n), np.full(n, UNCHECKED), {},
    )  # fmt: skip
    yield result
    suspects, local = np.zeros(n, bool), np.zeros(n)
    for part, found in slopes(evaluator, leaf, batched):
        result.numeric[part], result.scale[part], result.error[part] = found.value, found.scale, found.error
        suspects[part], local[part] = found.suspect, found.local
        advance(part.stop - part.start)
    tolerance = _tolerance(evaluator, leaf, result, pulled.epsilon, local)
    _settle(result, tolerance, suspects)
    if not np.all(suspects | (result.verdicts == PASS)):
        tolerance = tolerance._replace(sensitivity=pulled.moves[leaf].reshape(-1))
        _settle(result, tolerance, suspects)
    _settle_rest(evaluator, leaf, result, tolerance)
    result.size[:] = tolerance.allowance(slice(None), result.scale) / tolerance.relative
    yield result


def _settle(result: Coordinates, tolerance: Tolerance, suspects: np.ndarray) -> None:
    """Pass what agrees at the first look, with differences that are precise, or where both sides are nothing."""
    a, apart = np.abs(result.analytic), np.abs(result.analytic - result.numeric)
    size = np.full(a.shape, tolerance.largest) if tolerance.plain else result.scale
    tight = (result.error <= tolerance.relative * size) | (apart == 0)
    nothing = (result.scale <= 4 * result.error) & (np.maximum(a, result.error) <= tolerance.negligible)
    allowed = tolerance.allowance(slice(None), result.scale) + result.error
    settled = (apart <= allowed) & (tight | nothing) & ~suspects
    result.verdicts[settled] = PASS
    result.error[settled & nothing] = np.maximum(result.error, apart)[settled & nothing]


def _settle_rest(evaluator: Evaluator, leaf: int, result: Coordinates, tolerance: Tolerance) -> None:
    """Look again at every coordinate that hasn't passed."""
    apart, failures = np.abs(result.analytic - result.numeric), 0
    doubtful = tolerance.allowance(slice(None), result.scale) + 1e-5 * result.scale + 8 * result.error
    for i in map(int, np.flatnonzero(result.verdicts == UNCHECKED)):
        if failures >= MOST_REFINED_FAILURES:
            result.verdicts[i] = FAIL if apart[i] > doubtful[i] else INCONCLUSIVE
            continue
        refined = refine_coordinate(evaluator, leaf, i, tolerance.relative, float(result.analytic[i]))
        verdict = judge(float(result.analytic[i]), refined, tolerance, i)
        if verdict == FAIL and refined.unseen is not None and refined.unseen.any():
            verdict = _judge_seen(evaluator, leaf, refined, tolerance, i)
        result.numeric[i], result.error[i], result.scale[i] = refined.value, refined.error, refined.scale
        result.verdicts[i] = verdict
        failures += verdict == FAIL
        if verdict == NON_SMOOTH and refined.sides is not None:
            result.slopes[i] = refined.sides


def _tolerance(evaluator: Evaluator, leaf: int, found: Coordinates, epsilon: float, local: np.ndarray) -> Tolerance:
    largest = float(np.max(found.scale[np.isfinite(found.scale)], initial=0))
    strongest = float(np.max(np.abs(evaluator.u), initial=0))
    floor = np.minimum(negligible(evaluator, leaf, epsilon), coarse(epsilon) * strongest)
    rounding = 8 * epsilon * np.minimum(local, largest)
    zero = found.scale <= 4 * found.error  # then terms that should cancel may leave their last bits
    rounding = np.where(zero, np.maximum(rounding, np.minimum(8 * epsilon * largest, floor / 128)), rounding)
    if largest <= 1e-3 * strongest:  # the gradient may be nothing but rounding
        rounding = np.where(largest <= floor, np.maximum(rounding, floor / 128), rounding)
        rounding = np.maximum(rounding, epsilon**4 * strongest) if largest <= epsilon**4 * strongest else rounding
    return Tolerance(
        relative(epsilon, evaluator), coarse(epsilon), np.zeros(local.shape), largest, floor, rounding,
        underflow(evaluator.subject), plain=len(evaluator.points) == 2,
    )  # fmt: skip


def underflow(subject: Subject) -> float:
    """What the caller's precision may lose because it is too small to be represented."""
    return 1024 * max((float(np.finfo(x.dtype.type).tiny) for x in subject.leaves), default=0.0)


def negligible(evaluator: Evaluator, leaf: int, epsilon: float) -> np.ndarray:
    """Slopes that change the function's value by no more than its own rounding when a coordinate changes by itself."""
    x = np.abs(evaluator.leaves[leaf].reshape(-1))
    sizes = np.where(np.isfinite(x) & (x > 0), x, typical(x))
    return np.asarray(1024 * epsilon * evaluator.magnitude / sizes, float)


def coarse(epsilon: float) -> float:
    """The relative error of the differences beyond which agreement with them means little: 6e-7 for float64."""
    return epsilon**0.4


def relative(epsilon: float, evaluator: Evaluator) -> float:
    """The relative error that passes: 7e-11 for float64, 5e-5 for float32, 6e-7 for plain float64 differences."""
    fine = 2 * epsilon ** (2 / 3)
    return fine if len(evaluator.points) == 4 else max(fine, 6e-7)


def _judge_seen(evaluator: Evaluator, leaf: int, refined: Refined, tolerance: Tolerance, i: int) -> int:
    """The verdict when part of the gradient goes through outputs in which it is lost, as 1e-200 beside 1 is."""
    assert refined.unseen is not None
    parts = ByOutput(evaluator.subject, evaluator.cotangents)
    verdict = judge(parts.analytic(leaf, i, ~refined.unseen), refined, tolerance, i)
    if verdict == FAIL:
        return FAIL
    output, claimed = parts.furthest(leaf, i, np.flatnonzero(refined.unseen), np.zeros(refined.unseen.size))
    lost = abs(claimed) * refined.reach <= 8 * float(evaluator.weighted_rounding[output])
    return verdict if lost else FAIL


def judge(analytic: float, refined: Refined, tolerance: Tolerance, i: int) -> int:
    """The verdict on one coordinate after refinement."""
    allowed = float(tolerance.allowance(i, np.asarray(refined.scale)))
    if refined.sides is not None and np.isfinite(analytic):
        low, high = sorted(refined.sides)
        slack = allowed + 1e-9 * (high - low)
        return NON_SMOOTH if low - slack <= analytic <= high + slack else FAIL
    if not np.isfinite(refined.value):
        return INCONCLUSIVE
    known = max(refined.scale, tolerance.largest / 8)
    if not np.isfinite(analytic):
        return FAIL if refined.error <= 1e-3 * known or refined.error <= tolerance.negligible[i] else INCONCLUSIVE
    if abs(analytic - refined.value) > allowed + refined.error:
        return FAIL
    if refined.error <= tolerance.coarse * known:
        return PASS
    zero = refined.scale <= 4 * refined.error and max(abs(analytic), refined.error) <= tolerance.negligible[i]
    return PASS if zero else INCONCLUSIVE
