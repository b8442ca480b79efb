"""What a notebook shows for a Tape and a Variable; a checker's report has its own table."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from ..tape import Tape
from ..variable import Variable, strip
from .text import COLUMNS, cells, dimensions, entries

ROWS = 200  # of a tape in a notebook; tape.table() has them all


def attach_tables() -> None:
    renderers: list[tuple[Any, Callable]] = [(Tape, _tape), (Variable, _variable)]
    for kind, render in renderers:
        kind._repr_html_ = render


def _tape(tape: Tape) -> str:
    count, kept = len(tape.records), entries(tape)
    rows = [cells(tape, i, kept.get(i)) for i in range(count) if i < ROWS // 2 or i >= count - ROWS // 2]
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    return f"<table><caption>{count} records</caption><tr>{head}</tr>{body}</table>"


def _variable(v: Variable) -> str:
    name = escape(v.tape.names.get(v.index, f"record {v.index}"))
    return f"<b>{name}</b> {dimensions(v.shape)} {v.dtype}<pre>{escape(repr(strip(v)))}</pre>"
