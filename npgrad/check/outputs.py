"""Through which outputs a derivative goes: the pullback of parts of a cotangent."""

from __future__ import annotations

import numpy as np

from .subject import Subject


class ByOutput:
    """One subject's gradients, taken apart by outputs (numbered through, across arrays)."""

    def __init__(self, subject: Subject, cotangents: list[np.ndarray]):
        self.pullback = subject.vjp(subject.leaves)[1]
        self.cotangents = cotangents
        self.starts = np.cumsum([0, *(c.size for c in cotangents)])

    def analytic(self, leaf: int, place: int, kept: np.ndarray) -> float:
        """One coordinate's gradient for the cotangent where `kept`, 0 elsewhere."""
        pieces = [
            np.where(kept[a:b].reshape(c.shape), c, np.zeros((), c.dtype))
            for a, b, c in zip(self.starts, self.starts[1:], self.cotangents)
        ]
        return float(np.asarray(self.pullback(pieces)[leaf]).reshape(-1)[place])

    def furthest(self, leaf: int, place: int, candidates: np.ndarray, column: np.ndarray) -> tuple[int, float]:
        """The output, of these candidates, whose part of the gradient is furthest from `column`'s, found by halving."""
        while candidates.size > 1:
            halves = np.array_split(candidates, 2)
            errors = [abs(self.analytic(leaf, place, self._only(h)) - float(column[h].sum())) for h in halves]
            candidates = halves[int(errors[1] > errors[0])]
        return int(candidates[0]), self.analytic(leaf, place, self._only(candidates))

    def index(self, output: int) -> tuple[int, ...]:
        """The index of an output within its array."""
        which = int(np.searchsorted(self.starts, output, side="right")) - 1
        place = np.unravel_index(output - int(self.starts[which]), self.cotangents[which].shape)
        return tuple(int(i) for i in place)

    def _only(self, outputs: np.ndarray) -> np.ndarray:
        kept = np.zeros(int(self.starts[-1]), bool)
        kept[outputs] = True
        return kept
