"""A second look in higher precision, before a gradient is called wrong for what may be its rounding.

A right rule may lose all its digits: the slope of a saturated softmax is p − 1, and only the last bits of p are left.
So the same pullback runs once more in the widest float. Rounding then shrinks by the ratio of the two precisions, and
a wrong rule stays wrong.
"""

from __future__ import annotations

import numpy as np

from .contract import Breach, breaches
from .differences import Evaluator
from .verdicts import FAIL, INCONCLUSIVE, PASS, Coordinates, Pulled, relative


def look_again(
    evaluator: Evaluator, pulled: Pulled, leaves: list[Coordinates], broken: list[Breach], seed: int
) -> list[Breach]:
    """Pass the coordinates whose error is rounding, in place, and return the breaches that aren't."""
    if not np.isfinite(evaluator.start).any():  # inf - inf says nothing about anybody
        for found in leaves:
            found.verdicts[found.verdicts == FAIL] = INCONCLUSIVE
        return []
    widest = np.finfo(np.longdouble)
    if pulled.epsilon <= 16 * widest.eps or {b.kind for b in broken} - {"linearity"}:
        return broken
    subject = pulled.subject._replace(leaves=[x.astype(np.longdouble) for x in pulled.subject.leaves])
    try:
        wide = Pulled(subject, [c.astype(np.longdouble) for c in pulled.cotangents], float(widest.eps), seed)
        remaining = breaches(Evaluator(subject, wide.cotangents, like=evaluator), wide, seed) if broken else []
    except (TypeError, ValueError, ArithmeticError):  # LAPACK, for one, has no wider float than float64
        return broken
    if any(g.dtype != np.longdouble for g in wide.gradients):
        return broken
    for found, x, g in zip(leaves, subject.leaves, wide.gradients):
        _judge_again(found, x, g.reshape(-1), evaluator, pulled.epsilon)
    return remaining


def _judge_again(found: Coordinates, x: np.ndarray, wide: np.ndarray, evaluator: Evaluator, epsilon: float) -> None:
    strongest = float(np.max(np.abs(evaluator.u), initial=0))
    rounding = np.abs(found.analytic - wide)
    shrunk = 64 * rounding * (np.finfo(np.longdouble).eps / epsilon)
    tolerance = relative(epsilon, evaluator)
    agrees = np.abs(wide - found.numeric) <= tolerance * found.scale + shrunk + found.error
    small = rounding <= tolerance * strongest  # beside the cotangents
    precise = (found.verdicts == FAIL) | (found.error <= shrunk + tolerance * found.scale)
    sizes = np.maximum(np.maximum(np.abs(found.analytic), np.abs(found.numeric)), np.abs(wide))
    nothing = (sizes <= 64 * epsilon * strongest) & (rounding > 1e-6 * np.abs(wide))  # its digits are lost, as they may
    doubtful = (found.verdicts == FAIL) | (found.verdicts == INCONCLUSIVE)
    unseen = sizes <= 64 * np.finfo(np.longdouble).eps * strongest * max(1, np.max(np.abs(x), initial=0))
    found.verdicts[doubtful & unseen & ~nothing] = (
        INCONCLUSIVE  # below the rounding of what the differences are made of
    )
    found.verdicts[doubtful & (nothing | (agrees & small & precise))] = PASS
