"""A tape as one self-contained HTML page: its graph, and each record's rule, inputs, value and adjoint, step by step.

Python writes the data (layout, formulas, numbers) as JSON into a template; the page's script only shows it. Big
arrays are summarised by means over blocks, so that a few hundred records stay small.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

import numpy as np

from ..check.records import Entry, WatchfulTape
from ..tape import Record, Tape
from ..variable import strip
from .formulas import ELEMENTWISE, formula
from .text import (
    brief,
    constants,
    dimensions,
    entries,
    is_array,
    norm,
    operation,
    parameter,
    printable,
    saved_in,
    source_line,
)


def page(tape: Tape) -> str:
    """The whole page as text. ValueError if the tape has been released or is empty."""
    if not tape.records:
        raise ValueError(
            "the tape has no records to show: it was released by a gradient (keep them with retain=True) or is empty"
        )
    maps = _Maps(side=16 if len(tape.records) <= 100 else 8)
    kept = entries(tape)
    data = {
        "records": [_described(tape, i, kept.get(i), maps) for i in range(len(tape.records))],
        "places": places(tape),
        "maps": maps.found,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&":  # nothing in the data may end the script element
        text = text.replace(character, f"\\u{ord(character):04x}")
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/", text)


def places(tape: Tape) -> list[tuple[float, int]]:
    """Each record's column and layer: below all its parents, variables just above their first use."""
    records = tape.records
    parents = [[p for p in r.parents if p is not None] for r in records]
    layers = [0] * len(records)
    for i, above in enumerate(parents):
        layers[i] = 1 + max((layers[p] for p in above), default=-1)
    first_use: dict[int, int] = {}
    for i, above in enumerate(parents):
        for p in above:
            first_use[p] = min(first_use.get(p, layers[i]), layers[i])
    for i, above in enumerate(parents):
        if not above:
            layers[i] = max(0, first_use.get(i, 1) - 1)
    columns: dict[int, float] = {}
    taken: dict[int, set[int]] = {}
    for i in sorted(range(len(records)), key=lambda i: (layers[i], i)):
        wish = round(sum(columns[p] for p in parents[i]) / len(parents[i])) if parents[i] else 0
        free = taken.setdefault(layers[i], set())
        columns[i] = next(c for d in range(len(records) + 1) for c in (wish + d, wish - d) if c not in free)
        free.add(int(columns[i]))
    left = min(columns.values())
    return [(columns[i] - left, layers[i]) for i in range(len(records))]


class _Maps:
    """Arrays as small tables of numbers, each array once."""

    def __init__(self, side: int):
        self.side = side
        self.found: list[dict[str, Any]] = []
        self.kept: dict[int, tuple[int, Any]] = {}  # holds each array, so that its id stays its own

    def add(self, array: Any) -> int:
        array = strip(array)
        if id(array) not in self.kept:
            self.kept[id(array)] = (len(self.found), array)
            self.found.append(heat_map(np.asarray(array), self.side))
        return self.kept[id(array)][0]


def heat_map(array: np.ndarray, side: int) -> dict[str, Any]:
    """An array as at most side × side numbers, means over blocks of rows and columns where it is larger.

    Complex numbers, which pullbacks may keep, are shown as what they are in memory: a real part, then an imaginary one.
    """
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1).reshape(*array.shape[:-1], -1)
    numbers = np.asarray(array, float)
    *leading, columns = numbers.shape or (1,)
    rows = numbers.reshape(math.prod(leading), columns)
    finite = numbers[np.isfinite(numbers)]
    edges = [np.unique(np.linspace(0, n, min(n, side) + 1).astype(int)) for n in rows.shape]
    if rows.size:
        with np.errstate(invalid="ignore"):
            blocks = np.add.reduceat(np.add.reduceat(rows, edges[0][:-1], 0), edges[1][:-1], 1)
        blocks = blocks / np.outer(np.diff(edges[0]), np.diff(edges[1]))
    else:
        blocks = rows
    return {
        "shape": dimensions(array.shape),
        "dtype": str(array.dtype),
        "range": [float(f"{x:.6g}") for x in (finite.min(), finite.max())] if finite.size else None,
        "edges": [e.tolist() for e in edges] if blocks.shape != rows.shape else None,
        "numbers": [[_number(x) for x in row] for row in blocks.tolist()],
    }


def _number(x: float) -> Any:
    return float(f"{x:.6g}") if np.isfinite(x) else str(x)


def _described(tape: Tape, index: int, entry: Entry | None, maps: _Maps) -> dict[str, Any]:
    record = tape.records[index]
    values = tape.values if isinstance(tape, WatchfulTape) else None
    return {
        "name": printable(tape.names.get(index, "")),
        "primitive": "variable" if record.primitive is None else str(record.primitive),
        "operation": operation(record, entry),
        "parents": [p for p in record.parents if p is not None],
        "shape": dimensions(record.shape),
        "dtype": str(record.dtype),
        "line": source_line(tape, index, entry),
        **_rule(tape, record, entry, maps),
        "norm": norm(tape.adjoints.get(index)),
        "value": None if values is None else maps.add(values[index]),
        "adjoint": maps.add(tape.adjoints[index]) if index in tape.adjoints else None,
        "saves": [[name, maps.add(array), strip(array).nbytes] for name, array in saved_in(record)],
    }


def _rule(tape: Tape, record: Record, entry: Entry | None, maps: _Maps) -> dict[str, Any]:
    """The rule in notation: forward, what is added to the adjoint of each input on the tape, and who is who.

    `arguments` are a letter and a record, `parameters` a letter and a text, `constants` a letter and a map.
    """
    if record.primitive is None:
        return {"forward": "an input of the tape", "backward": ["its adjoint is the gradient"]}
    name = str(record.primitive)
    known = formula(operation(record, entry)) or formula(name)
    positions = _positions(record, entry, len(known.letters) if known else 0)

    def letter(position: int) -> str:
        letters = known.letters if known else ()
        return letters[position] if position < len(letters) else parameter(record.primitive, position)

    inputs = list(zip(positions or (), (p for p in record.parents if p is not None)))
    if known is None:
        forward = f"y = {name}({', '.join(letter(position) for position, _ in inputs) or '…'})"
        backward = [f"the adjoint of {letter(position)} += its pullback of ȳ" for position, _ in inputs]
    else:
        forward = known.forward
        chosen = range(len(known.backward)) if positions is None else positions
        backward = [known.backward[min(position, len(known.backward) - 1)] for position in chosen]
        for n, (_, parent) in enumerate(inputs):
            if name in ELEMENTWISE and tape.records[parent].shape != record.shape:
                backward[n] += f", summed to {dimensions(tape.records[parent].shape)}"
    others = [(c.name if c.position is None else letter(c.position), strip(c.value)) for c in constants(record, entry)]
    arrays = [(called, value) for called, value in others if is_array(value)]
    return {
        "forward": forward,
        "backward": list(dict.fromkeys(filter(None, backward))) or ["each input's adjoint += its pullback of ȳ"],
        "arguments": [[letter(position), parent] for position, parent in inputs],
        "parameters": [[called, brief(value)] for called, value in others if not is_array(value)],
        "constants": [[called, maps.add(value)] for called, value in arrays if value.dtype.kind in "fiub"],
    }


def _positions(record: Record, entry: Entry | None, letters: int) -> list[int] | None:
    """Which arguments the parents are, None if the record doesn't tell."""
    if entry is not None:
        return entry.positions
    if None in record.parents or len(record.parents) == letters:
        return [i for i, parent in enumerate(record.parents) if parent is not None]
    return None
