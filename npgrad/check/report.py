"""The report of a check: an object that is true if everything passed, and reads as a table."""

from __future__ import annotations

import html
from typing import Any, NamedTuple

import numpy as np

from .contract import Breach
from .directions import Direction
from .verdicts import FAIL, INCONCLUSIVE, NAMES, NON_SMOOTH, PASS, UNCHECKED, Coordinates

SHOWN = 8  # non-smooth coordinates, breaches, failing directions listed before "and n more"


class Worst(NamedTuple):
    """The coordinate at which the two sides are furthest apart, compared with what they are allowed."""

    path: str
    place: tuple[int, ...]
    analytic: float
    numeric: float
    error: float
    verdict: str


class GradientError(ValueError):
    """A gradient check that didn't pass; `report` says where."""

    def __init__(self, report: Report):
        super().__init__(f"{report}")
        self.report = report


class Report:
    """What a check found. True if all passed; non-smooth coordinates are accepted and listed.

    `leaves` has one `Coordinates` per float leaf, `breaches` the broken promises of the pullback, `directions` the
    directional checks, `culprit` where a failure was traced to. `verdict` is "pass", "fail" or "inconclusive".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.breaches: list[Breach] = []
        self.leaves: list[Coordinates] = []
        self.directions: list[Direction] = []
        self.culprit: Any = None
        self.traced = False
        self.found: Worst | None = None
        self.notes: list[str] = []
        self.interrupted = False
        self.seconds = 0.0

    def __bool__(self) -> bool:
        return self.verdict == "pass" and not self.interrupted

    @property
    def verdict(self) -> str:
        worst = max((int(c.verdicts.max(initial=PASS)) for c in self.leaves), default=PASS)
        verdicts = [FAIL if c.count(FAIL) else worst for c in self.leaves] + [d.verdict for d in self.directions]
        if self.breaches or FAIL in verdicts:
            return "fail"
        return "inconclusive" if INCONCLUSIVE in verdicts or UNCHECKED in verdicts else "pass"

    @property
    def coordinates(self) -> int:
        """How many coordinates have been compared."""
        return sum(c.verdicts.size - c.count(UNCHECKED) for c in self.leaves)

    @property
    def largest_error(self) -> float:
        """The largest |analytic - numeric| of all coordinates, relative to what was summed and rounded there."""
        return max((relative_error(c) for c in self.leaves), default=0.0)

    @property
    def worst(self) -> Worst | None:
        """The worst coordinate of all: a failing one if there is one."""
        found = [w for w in (*map(worst_of, self.leaves), self.found) if w is not None]
        return max(
            found, key=lambda w: (NAMES.index(w.verdict) if w.verdict != "unchecked" else -1, w.error), default=None
        )

    @property
    def non_smooth(self) -> list[tuple[str, tuple[int, ...], float, float]]:
        """Path, index, left and right slope of each coordinate at which these stay apart."""
        return [
            (c.path, index_of(c, i), *sides) for c in self.leaves for i, sides in sorted(c.slopes.items())
        ]  # fmt: skip

    def raise_if_failed(self) -> None:
        """GradientError, with this report, unless everything passed."""
        if not self and not self.interrupted:
            raise GradientError(self)

    def table(self) -> str:
        """One line per leaf: coordinates, largest errors, the worst coordinate with both values, verdicts."""
        rows = [HEADER, *map(_row, self.leaves)]
        widths = [max(len(r[i]) for r in rows) for i in range(len(HEADER))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.verdict}, {self.coordinates} coordinates, {self.seconds:.2f} s"]
        if self.interrupted:
            lines[0] = f"{self.name}: interrupted after {self.coordinates} coordinates, {self.verdict} so far"
        lines += _listed([f"  {b.kind} at {b.where}: {b.message}" for b in self.breaches])
        if self.leaves:
            lines.append(self.table())
        lines += _listed([_direction(d) for d in self.directions])
        lines += _listed(
            [f"  non-smooth at {p}{_subscript(i)}: slopes {a:.6g} and {b:.6g}" for p, i, a, b in self.non_smooth]
        )
        if self.found is not None:
            w = self.found
            where = f"{w.path}{_subscript(w.place)}"
            lines.append(f"  bisected to {where}: analytic {w.analytic:.10g}, numeric {w.numeric:.10g}")
        if self.culprit is not None:
            lines.append(str(self.culprit))
        return "\n".join(lines + self.notes)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _row(c)) + "</tr>" for c in self.leaves
        )
        heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEADER)
        first, *rest = str(self).splitlines()
        table = set(self.table().splitlines())
        others = "".join(f"<p>{html.escape(line)}</p>" for line in rest if line not in table)
        return f"<p><b>{html.escape(first)}</b></p><table><tr>{heads}</tr>{rows}</table>{others}"


HEADER = (
    "argument",
    "shape",
    "dtype",
    "coordinates",
    "max abs error",
    "max rel error",
    "worst at",
    "analytic",
    "numeric",
    "verdict",
)


def _row(c: Coordinates) -> tuple[str, ...]:
    worst = worst_of(c)
    verdicts = ", ".join(f"{c.count(v)} {NAMES[v]}" for v in (FAIL, INCONCLUSIVE, NON_SMOOTH, UNCHECKED) if c.count(v))
    where = (
        ("", "", "") if worst is None else (_subscript(worst.place), f"{worst.analytic:.10g}", f"{worst.numeric:.10g}")
    )
    return (
        c.path, str(c.shape), str(c.dtype), str(c.verdicts.size), f"{_largest(apart(c)):.1e}",
        f"{relative_error(c):.1e}", *where, verdicts or "pass",
    )  # fmt: skip


def apart(c: Coordinates) -> np.ndarray:
    """|analytic - numeric|, 0 where one-sided slopes are accepted."""
    with np.errstate(invalid="ignore"):
        return np.where(c.verdicts == NON_SMOOTH, 0, np.abs(c.analytic - c.numeric)).astype(float)


def relative_error(c: Coordinates) -> float:
    """The largest error in units of the size that it may be relative to; errors of the differences don't count."""
    error = apart(c)
    size = np.maximum(c.size, np.abs(c.analytic).astype(float))
    counted = (error > 2 * c.error) & (size > 0) & np.isfinite(error)
    return _largest(np.where(counted, error, 0) / np.where(counted, size, 1))


def _largest(x: np.ndarray) -> float:
    return float(np.max(x[np.isfinite(x)], initial=0.0))


def worst_of(c: Coordinates) -> Worst | None:
    """The coordinate of a leaf with the gravest verdict and, among those, the largest error."""
    if not c.verdicts.size:
        return None
    rank = np.where(c.verdicts == UNCHECKED, -1, c.verdicts)
    error = np.where(np.isfinite(apart(c)), apart(c), np.inf)
    candidates = np.flatnonzero(rank == rank.max())
    i = int(candidates[np.argmax(error[candidates])])
    a, n = float(c.analytic[i]), float(c.numeric[i])
    return Worst(c.path, index_of(c, i), a, n, float(error[i]), NAMES[c.verdicts[i]])


def index_of(c: Coordinates, i: int) -> tuple[int, ...]:
    return index_in(c.shape, i)


def index_in(shape: tuple[int, ...], i: int) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(i, shape)) if shape else ()


def _subscript(index: tuple[int, ...]) -> str:
    return str(list(index)) if index else "()"


def _listed(lines: list[str]) -> list[str]:
    return lines[:SHOWN] + ([f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])


def _direction(d: Direction) -> str:
    slope = "no remainder" if d.slope is None else f"Taylor slope {d.slope:.2f}"
    return f"  direction: analytic {d.analytic:.10g}, numeric {d.numeric:.10g}, {slope}: {NAMES[d.verdict]}"
