"""Where a wrong gradient comes from: each record of the tape, checked alone on the inputs that it was recorded with.

From each entry of a tape (records.py) a subject is made, and the first one that breaks the contract or has wrong
numbers is the culprit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .contract import Breach, breaches
from .differences import Evaluator
from .directions import check_direction, random_direction
from .hints import hint
from .outputs import ByOutput
from .records import Entry, of_record
from .subject import Subject, of_pullback, signed_cotangents
from .verdicts import FAIL, Coordinates, Pulled, judge_leaf, working_epsilon

MOST_COORDINATES = 4096  # of one record, when its failing coordinates are counted


class Culprit(NamedTuple):
    """The operation that is wrong by itself, and how."""

    primitive: str
    record: int
    line: str
    argument: str
    input_index: tuple[int, ...]
    output_index: tuple[int, ...] | None
    analytic: float
    numeric: float
    failing: int
    coordinates: int
    box: str
    others: int
    breaches: list[Breach]
    hint: str

    def __str__(self) -> str:
        lines = [f"wrong by itself: {self.primitive}, record %{self.record}, called at {self.line}"]
        lines += [f"  {b.kind} at {b.where}: {b.message}" for b in self.breaches]
        if self.coordinates:
            output = "" if self.output_index is None else f", seen at output {list(self.output_index)}"
            lines.append(
                f"  {self.argument} at {list(self.input_index)}{output}: analytic {self.analytic:.10g}, "
                f"numeric {self.numeric:.10g}"
            )
            lines.append(f"  {self.failing} of {self.coordinates} coordinates fail, within {self.box}")
        if self.hint:
            lines.append(f"  {self.hint}")
        if self.others:
            lines.append(f"  {self.others} other record{'s' * (self.others > 1)} fail alone too")
        return "\n".join(lines)


def locate(entries: list[Entry], seed: int, order: int = 1) -> Culprit | None:
    """The first record that is wrong by itself; None if none is."""
    with np.errstate(all="ignore"):
        for thorough in (False, True):
            wrong = [e for e in entries if _fails(_subject_of(e, order, seed), seed, thorough)]
            if wrong:
                return _describe(wrong[0], len(wrong) - 1, order, seed)
    return None


def _subject_of(entry: Entry, order: int, seed: int) -> Subject:
    subject = of_record(entry)
    if order == 1:
        return subject

    def call(*leaves: Any) -> Any:
        new = [*entry.args]
        for position, x in zip(entry.positions, leaves):
            new[position] = x
        return entry.primitive(*new, **entry.kwargs)

    return of_pullback(call, tuple(subject.leaves), signed_cotangents(subject, seed))


def prepare(subject: Subject, seed: int, extended: bool = True) -> tuple[Evaluator, Pulled]:
    """An evaluator for the differences, and what the pullback says."""
    cotangents = signed_cotangents(subject, seed)
    evaluator = Evaluator(subject, cotangents, extended)
    epsilon = working_epsilon(subject, subject.vjp(subject.leaves)[0], evaluator)
    return evaluator, Pulled(subject, cotangents, epsilon, seed)


def _fails(subject: Subject, seed: int, thorough: bool) -> bool:
    if not subject.leaves:
        return False
    evaluator, pulled = prepare(subject, seed)
    if thorough:
        return any(c.count(FAIL) for c in _all_coordinates(evaluator, pulled))
    if breaches(evaluator, pulled, seed):
        return True
    rng = np.random.default_rng([seed, 2])
    directions = [random_direction(evaluator, rng) for _ in range(2)]
    return any(check_direction(evaluator, pulled, d, remainder=False).verdict == FAIL for d in directions)


def _all_coordinates(evaluator: Evaluator, pulled: Pulled) -> list[Coordinates]:
    found = []
    for leaf in range(len(pulled.gradients)):
        *_, coordinates = judge_leaf(evaluator, leaf, pulled)
        found.append(coordinates)
    return found


def _describe(entry: Entry, others: int, order: int, seed: int) -> Culprit:
    """All that can be said about a record that fails."""
    subject = _subject_of(entry, order, seed)
    evaluator, pulled = prepare(subject, seed)
    broken = breaches(evaluator, pulled, seed)
    shaped = all(np.shape(g) == x.shape for g, x in zip(pulled.gradients, subject.leaves))
    small = sum(x.size for x in subject.leaves) <= MOST_COORDINATES
    leaves = _all_coordinates(evaluator, pulled) if shaped and small else []
    failing = [(leaf, c) for leaf, c in enumerate(leaves) if c.count(FAIL)]
    if not failing:
        return Culprit(
            str(entry.primitive), entry.number, entry.line, "", (), None, 0.0, 0.0, 0, 0, "", others, broken, ""
        )  # fmt: skip
    leaf, c = max(failing, key=lambda item: _worst_share(item[1]))
    place = int(np.argmax(np.where(c.verdicts == FAIL, _share(c), -1)))
    output, analytic, numeric = worst_output(evaluator, subject, leaf, place)
    places = np.argwhere((c.verdicts == FAIL).reshape(c.shape))
    box = "[" + ", ".join(f"{a}:{b + 1}" for a, b in zip(places.min(axis=0), places.max(axis=0))) + "]"
    guess = hint(entry, c, leaf, evaluator.cotangents[0]) if order == 1 else ""
    return Culprit(
        str(entry.primitive), entry.number, entry.line, c.path, _unravel(place, c.shape), output, analytic, numeric,
        c.count(FAIL), c.verdicts.size, box, others, broken, guess,
    )  # fmt: skip


def _share(c: Coordinates) -> np.ndarray:
    """Each coordinate's error, NaN as infinite."""
    return np.nan_to_num(np.abs(c.analytic - c.numeric).astype(float), nan=np.inf)


def _worst_share(c: Coordinates) -> float:
    return float(np.amax(_share(c), where=c.verdicts == FAIL, initial=0.0))


def _unravel(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()


def worst_output(
    evaluator: Evaluator, subject: Subject, leaf: int, place: int
) -> tuple[tuple[int, ...] | None, float, float]:
    """The output whose derivative by one coordinate is furthest off, by halving the cotangent; both values there."""
    parts = ByOutput(subject, evaluator.cotangents)
    values, x = evaluator.at(leaf, place), evaluator.leaves[leaf].reshape(-1)[place]
    h = evaluator.dtype.type((abs(x) if x else 1) * 2.0**-10)
    once, twice = ((values(t) - values(-t)) / ((x + t) - (x - t)) for t in (h, 2 * h))
    column = np.nan_to_num(((4 * once - twice) / 3 * evaluator.u).astype(float))
    output, analytic = parts.furthest(leaf, place, np.arange(column.size), column)
    return parts.index(output), analytic, float(column[output])
