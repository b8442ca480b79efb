"""A tape as text: one line per record, in the order of execution.

Each line has the record's index and name, its operation with parameters, its parents, shape and dtype, what its
pullback keeps alive, and after a retained sweep the norm of its adjoint.
"""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np

from ..debug import saved_arrays
from ..tape import Record, Tape
from ..variable import strip

COLUMNS = ("", "name", "operation", "inputs", "shape", "dtype", "saves", "adjoint")


def table(tape: Tape, rows: int | None = None) -> str:
    """The tape's records as an aligned table, elided in the middle if there are more than `rows`.

    >>> tape = Tape()
    >>> x = tape.variable([3.0, 4.0], name="x")
    >>> _ = tape.gradient(np.sum(x * x), [x], retain=True)
    >>> print(table(tape))
       name  operation  inputs  shape  dtype    saves     adjoint
    0  x     variable           2      float64            10
    1        multiply   0, 0    2      float64  y (16 B)  1.41421
    2        sum        1       -      float64            1
    3 records, 16 bytes saved
    """
    count = len(tape.records)
    shown = list(range(count))
    if rows is not None and count > rows:
        shown = [*range(rows - rows // 2), *range(count - rows // 2, count)]
    lines = [COLUMNS, *(_cells(tape, i) for i in shown)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(COLUMNS))]
    used = [c for c in range(len(COLUMNS)) if any(line[c] for line in lines[1:])]
    text = ["  ".join(line[c].ljust(widths[c]) for c in used).rstrip() for line in lines]
    if len(shown) < count:
        text.insert(1 + rows - rows // 2, f"… {count - len(shown)} more records …")  # type: ignore[operator]
    saved = _distinct_bytes([saved_in(r) for r in tape.records])
    status = ", released" if tape.released else ""
    return "\n".join([*text, f"{count} records, {saved:,} bytes saved{status}"])


def saved_in(record: Record) -> list[tuple[str, Any]]:
    """The names and arrays that a record's pullbacks keep alive, each array once."""
    pullbacks = record.pullbacks if isinstance(record.pullbacks, tuple) else (record.pullbacks,)
    found: dict[int, tuple[str, Any]] = {}
    for pullback in pullbacks:
        for name, a in saved_arrays(pullback):
            found.setdefault(id(a), (name, a))
    return list(found.values())


def _cells(tape: Tape, index: int) -> tuple[str, ...]:
    record = tape.records[index]
    operation = "variable" if record.primitive is None else str(record.primitive)
    if record.kwargs:
        operation += "[" + ", ".join(f"{k}={_short(v)}" for k, v in record.kwargs.items()) + "]"
    saved = saved_in(record)
    names = ", ".join(dict.fromkeys(name for name, _ in saved))
    adjoint = strip(tape.adjoints.get(index))
    return (
        str(index),
        tape.names.get(index, ""),
        operation,
        ", ".join(str(p) for p in record.parents if p is not None),
        "×".join(map(str, record.shape)) or "-",
        str(record.dtype),
        f"{names} ({_distinct_bytes([saved]):,} B)" if saved else "",
        "" if adjoint is None else f"{math.sqrt(float(np.sum(np.square(np.asarray(adjoint, float))))):.6g}",
    )


def _distinct_bytes(saved: list[list[tuple[str, Any]]]) -> int:
    """The size of the arrays together, each one and each buffer counted once."""
    sizes: dict[int, int] = {}
    for found in saved:
        for _, a in found:
            a = strip(a)
            owner = a if a.base is None else a.base
            sizes[id(owner)] = max(sizes.get(id(owner), 0), a.nbytes)
    return sum(sizes.values())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 24 else text[:21] + "…"


def terminal_rows() -> int:
    """How many records of a printed tape fit a screen, and at least 20."""
    return max(20, shutil.get_terminal_size().lines - 4)
