"""Derivatives in random directions: for what has too many coordinates to go through one by one.

A direction moves every coordinate in proportion to its size, by random signs. The derivative along it is compared as a
coordinate's is. Taylor's remainder |f(x + td) - f(x) - t a| shrinks like t² when the pullback's a is right and
like t when it is not, so its slope in a doubly logarithmic plot says the same in one number. A direction that fails is
halved, again and again, to the coordinate that makes it fail.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .differences import Evaluator, refine, typical
from .verdicts import FAIL, Pulled, Tolerance, coarse, judge, negligible, relative, underflow


class Direction(NamedTuple):
    """The derivative in one direction, both ways, and the slope of Taylor's remainder (2 when right)."""

    analytic: float
    numeric: float
    error: float
    slope: float | None
    verdict: int


def random_direction(evaluator: Evaluator, rng: np.random.Generator) -> list[np.ndarray]:
    """Every coordinate by plus or minus half to all of its size; those that aren't finite stay."""
    found = []
    for x in evaluator.leaves:
        size = np.where(x == 0, typical(x), np.abs(x)) * rng.choice([-1.0, 1.0], x.shape) * rng.uniform(0.5, 1, x.shape)
        found.append(np.where(np.isfinite(size), size, 0).astype(evaluator.dtype))
    return found


def check_direction(
    evaluator: Evaluator, pulled: Pulled, direction: list[np.ndarray], remainder: bool = True
) -> Direction:
    """The derivative along one direction, from the pullback and from differences."""
    parts = [np.asarray(g, evaluator.dtype) * d for g, d in zip(pulled.gradients, direction)]
    parts = [np.where(d == 0, 0, p) for p, d in zip(parts, direction)]
    analytic = float(sum(np.sum(p) for p in parts))
    values = evaluator.along(direction)
    goal = relative(pulled.epsilon, evaluator)
    refined = refine(evaluator, values, 0.0, 0.25, 1.0, goal, analytic)
    summed = math.sqrt(float(sum(np.sum(p * p) for p in parts)))
    refined = refined._replace(scale=max(refined.scale, summed))
    strongest = float(np.max(np.abs(evaluator.u), initial=0))
    rounding = max(pulled.epsilon * evaluator.magnitude / 64, pulled.epsilon**4 * strongest)
    floors = [float(np.max(negligible(evaluator, i, pulled.epsilon), initial=0)) for i in range(len(parts))]
    tolerance = Tolerance(
        goal, coarse(pulled.epsilon), np.zeros(1), refined.scale, np.array([max(floors, default=0.0)]),
        np.array([rounding]), underflow(evaluator.subject),
    )  # fmt: skip
    if judge(analytic, refined, tolerance, 0) == FAIL:
        moved = sum(np.sum((m * np.asarray(d, float)) ** 2) for m, d in zip(pulled.moves, direction))
        tolerance = tolerance._replace(sensitivity=np.array([math.sqrt(float(moved))]))
    verdict = judge(analytic, refined, tolerance, 0)
    allowed = float(tolerance.allowance(0, np.asarray(refined.scale)))
    slope = _taylor(evaluator, direction, analytic, allowed) if remainder else None
    return Direction(analytic, float(refined.value), float(refined.error), slope, verdict)


def _taylor(evaluator: Evaluator, direction: list[np.ndarray], analytic: float, allowed: float) -> float | None:
    """The slope of log |f(x + td) - f(x) - t a| against log t, where the remainder stands clear of rounding."""
    values, noise = evaluator.along(direction), float(np.sum(evaluator.weighted_rounding))
    slope = before = None
    for t in 2.0 ** -np.arange(3, 24):
        change = values(t) - evaluator.start
        remainder = abs(float(np.where(np.isnan(change), 0, change) @ evaluator.u - t * np.longdouble(analytic)))
        if remainder <= 256 * (noise + t * allowed):
            break
        if before is not None:
            slope = math.log2(before / remainder)
        before = remainder
    return slope


def bisect(evaluator: Evaluator, pulled: Pulled, direction: list[np.ndarray]) -> tuple[int, int] | None:
    """The leaf and place of a coordinate that makes this direction fail, in O(log n) directional checks."""
    sizes = [d.size for d in direction]
    starts = np.cumsum([0, *sizes])
    flat = np.concatenate([d.reshape(-1) for d in direction])

    def fails(first: int, last: int) -> tuple[bool, float]:
        part = np.zeros_like(flat)
        part[first:last] = flat[first:last]
        pieces = [part[a:b].reshape(d.shape) for a, b, d in zip(starts, starts[1:], direction)]
        found = check_direction(evaluator, pulled, pieces, remainder=False)
        return found.verdict == FAIL, abs(found.analytic - found.numeric)

    first, last = 0, flat.size
    while last - first > 1:
        middle = (first + last) // 2
        (left, error), (right, other) = fails(first, middle), fails(middle, last)
        if not (left or right):
            return None
        first, last = (first, middle) if left and (not right or error >= other) else (middle, last)
    leaf = int(np.searchsorted(starts, first, side="right")) - 1
    return leaf, first - int(starts[leaf])
