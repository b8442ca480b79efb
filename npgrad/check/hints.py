"""Patterns of errors that betray their cause."""

from __future__ import annotations

from typing import Any

import numpy as np

from .verdicts import FAIL, Coordinates


def hint(entry: Any, c: Coordinates, leaf: int, cotangent: np.ndarray) -> str:
    """One sentence about the likely mistake, or nothing; `c` is the failing argument of the recorded `entry`."""
    a = c.analytic.astype(float).reshape(c.shape)
    n = c.numeric.astype(float).reshape(c.shape)
    wrong = (c.verdicts == FAIL).reshape(c.shape)
    for pattern in (_repeated_forward, _scale, _overwritten, _leak, _missing_reduction):
        found = pattern(entry, a, n, wrong, leaf, cotangent)
        if found:
            return found
    return ""


def _near(x: np.ndarray, y: np.ndarray, tolerance: float = 1e-5) -> bool:
    return x.shape == y.shape and bool(np.all(np.abs(x - y) <= tolerance * np.max(np.abs(y), initial=0)))


def _repeated_forward(entry: Any, a: np.ndarray, n: np.ndarray, wrong: np.ndarray, leaf: int, g: np.ndarray) -> str:
    """A rotation's pullback that turns the same way as its forward."""
    if g.shape != a.shape or entry.positions[leaf] != 0 or len(entry.args) < 2:
        return ""
    again = np.asarray(entry.primitive(g, *entry.args[1:], **entry.kwargs), float)
    if again.shape == a.shape and _near(a, again):
        return (
            "hint: the pullback repeats the forward; if it is a rotation, it turns the wrong way (the sign of the sine)"
        )
    return ""


def _scale(entry: Any, a: np.ndarray, n: np.ndarray, wrong: np.ndarray, leaf: int, g: np.ndarray) -> str:
    """The same factor wherever it fails."""
    large = wrong & (np.abs(n) > 1e-6 * np.max(np.abs(n), initial=0))
    if np.count_nonzero(large) < 2:
        return ""
    ratios = a[large] / n[large]
    ratio = float(np.median(ratios))
    if np.ptp(ratios) <= 1e-3 * abs(ratio - 1) + 1e-9 * abs(ratio):
        where = "everywhere it fails" if np.count_nonzero(wrong) < a.size else "everywhere"
        return f"hint: analytic = {ratio:.10g} * numeric {where}: a scale"
    return ""


def _overwritten(entry: Any, a: np.ndarray, n: np.ndarray, wrong: np.ndarray, leaf: int, g: np.ndarray) -> str:
    """Failures only in rows that an integer index names more than once."""
    for index in _integers([*entry.args, *entry.kwargs.values()]):
        places, counts = np.unique(index, return_counts=True)
        if a.ndim and counts.max(initial=0) > 1 and places.min() >= -len(a) and places.max() < len(a):
            rows = np.unique(np.nonzero(wrong)[0])
            if set(rows.tolist()) <= set((places[counts > 1] % len(a)).tolist()):
                return "hint: only rows that are indexed more than once fail: overwritten instead of accumulated"
    return ""


def _integers(values: list) -> list[np.ndarray]:
    found = []
    for value in values:
        parts = value if isinstance(value, tuple) else (value,)
        found += [
            np.asarray(v) for v in parts if isinstance(v, (list, np.ndarray)) and np.asarray(v).dtype.kind in "iu"
        ]
    return found


def _leak(entry: Any, a: np.ndarray, n: np.ndarray, wrong: np.ndarray, leaf: int, g: np.ndarray) -> str:
    """Failures only above the diagonal of the last two axes, where nothing should arrive."""
    if a.ndim < 2 or min(a.shape[-2:]) < 2:
        return ""
    above = np.triu(np.ones(a.shape[-2:], bool), k=a.shape[-1] - a.shape[-2] + 1)
    if not np.any(wrong & ~above) and not np.any(n[wrong]):
        return "hint: only coordinates above the diagonal fail, where the slope is 0: the mask leaks"
    return ""


def _missing_reduction(entry: Any, a: np.ndarray, n: np.ndarray, wrong: np.ndarray, leaf: int, g: np.ndarray) -> str:
    """Numeric rows sum to zero and analytic ones don't: a term that subtracts a sum is missing."""
    for axis in range(a.ndim - 1, -1, -1):
        size = np.sum(np.abs(n), axis=axis)
        if a.shape[axis] < 2 or not np.all(size > 0):
            continue
        if np.all(np.abs(np.sum(n, axis=axis)) <= 1e-6 * size) and np.any(np.abs(np.sum(a, axis=axis)) > 1e-6 * size):
            return (
                f"hint: sums along axis {axis} should be 0 and are not: a missing reduction (a term g - sum(g * ...))"
            )
    return ""
