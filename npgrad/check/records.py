"""A function's recorded operations, each with all that it was called with: what can be checked or run again alone.

A `WatchfulTape` keeps what an ordinary one lets go: every operation's arguments, result and source line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import tree as trees
from ..debug import source_line
from ..tape import Record, Tape, _fit
from ..variable import Variable
from .contract import Breach, forms
from .subject import Subject, float_leaves, is_float, signed_cotangents


class Entry(NamedTuple):
    """One operation as it was recorded: `positions` are the arguments on the tape, `labels` what they are called.

    `parents` are the records that these arguments come from.
    """

    number: int
    primitive: Any
    line: str
    args: list
    kwargs: dict
    positions: list[int]
    parents: list[int]
    labels: list[str]
    pullbacks: Any


class WatchfulTape(Tape):
    """A tape that keeps every record's arguments and source line, in `entries`."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.values: list[Any] = []

    def record(self, primitive: Any, out: Any, parents: tuple, pullbacks: Any, args: Any, kwargs: Any) -> Variable:
        variable = super().record(primitive, out, parents, pullbacks, args, kwargs)
        self.values.append(variable.raw)
        if primitive is not None:
            positions = self._positions(parents, args)
            labels = [self._label(primitive, parents, p, n) for n, p in enumerate(positions)]
            called = [*args], dict(kwargs or {}), positions, [p for p in parents if p is not None], labels
            pullbacks = self.records[-1].pullbacks  # what the sweep will run
            self.entries.append(Entry(variable.index, primitive, source_line(), *called, pullbacks))
        return variable

    def _positions(self, parents: tuple, args: Any) -> list[int]:
        """Which arguments the parents are: a fused primitive's line up with them, others are in their order."""
        if None in parents:
            return [i for i, parent in enumerate(parents) if parent is not None]
        found: list[int] = []
        for parent in parents:
            start = found[-1] + 1 if found else 0
            found.append(next(i for i in range(start, len(args)) if args[i] is self.values[parent]))
        return found

    def _label(self, primitive: Any, parents: tuple, position: int, order: int) -> str:
        parent = [p for p in parents if p is not None][order]
        names = [p.name for p in primitive._parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        own = names[position] if position < len(names) else f"argument {position}"
        return f"{own} ({self.names[parent]})" if parent in self.names else own


def trace(subject: Subject) -> list[Entry]:
    """The subject's function as a list of recorded operations."""
    if subject.call is None:
        return []
    tape = WatchfulTape()
    subject.call([tape.variable(x, path) for x, path in zip(subject.leaves, subject.paths)])
    return tape.entries


def of_record(entry: Entry) -> Subject:
    """One recorded operation, at its recorded arguments and with its recorded pullbacks there, as a subject."""

    def fill(arrays: list) -> list:
        new = [*entry.args]
        for position, array in zip(entry.positions, arrays):
            new[position] = array
        return new

    def bind(arrays: list) -> Callable[[], list]:
        filled = fill(arrays)
        return lambda: float_leaves(entry.primitive(*filled, **entry.kwargs))

    def differentiate(arrays: list) -> tuple[list, Callable]:
        now = entry if all(x is y for x, y in zip(arrays, leaves)) else _record_again(entry, fill(arrays))
        return bind(arrays)(), lambda cotangents: pull(now, cotangents[0])

    leaves = [np.asarray(entry.args[p]) for p in entry.positions]
    return Subject(str(entry.primitive), entry.labels, leaves, bind, differentiate)


def _record_again(entry: Entry, args: list) -> Entry:
    tape = WatchfulTape()
    for p in entry.positions:
        args[p] = tape.variable(args[p])
    entry.primitive(*args, **entry.kwargs)
    return tape.entries[-1]


def pull(entry: Entry, g: np.ndarray) -> list:
    """The gradients of one record as the sweep takes them, in the dtype that the rule gave where it should know."""
    if isinstance(entry.pullbacks, tuple):
        found = [pullback(g) for pullback in entry.pullbacks]
    else:
        every = list(entry.pullbacks(g))
        found = [every[p] for p in entry.positions]
    leaves = [np.asarray(entry.args[p]) for p in entry.positions]
    floats = {np.asarray(x).dtype for x in trees.leaves(entry.args) if isinstance(x, np.ndarray) and is_float(x)}
    uniform = len(floats | {g.dtype, *(x.dtype for x in leaves)}) == 1
    gradients = []
    for x, gradient in zip(leaves, found):
        to = Record(None, (), (), x.shape, x.dtype, None)
        record = Record(entry.primitive, (), (), g.shape, g.dtype, None)
        try:
            fitted = _fit(gradient, to, record)
        except ValueError:
            fitted = np.asarray(gradient)  # of a shape that the sweep would refuse: the contract names it
        gradients.append(np.asarray(fitted, np.asarray(gradient).dtype) if uniform else np.asarray(fitted))
    return gradients


def record_breaches(entries: list[Entry], seed: int) -> list[tuple[Entry, list[Breach]]]:
    """Records whose pullbacks return wrong shapes or dtypes, or change their cotangent or arguments."""
    found = []
    for entry in entries:
        subject = of_record(entry)
        if not subject.leaves:
            continue
        cotangents = signed_cotangents(subject, seed)
        broken = forms(subject, *subject.vjp(subject.leaves), cotangents)
        if broken:
            found.append(
                (entry, [b._replace(where=f"{subject.name}, record %{entry.number}, {b.where}") for b in broken])
            )
    return found
