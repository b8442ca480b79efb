"""A tape as text: one line per record, in the order of execution.

Each line has the record's index and name, its operation with parameters, its parents, shape and dtype, what its
pullback keeps alive, the source line if the tape watched for it, and after a retained sweep the norm of its adjoint.
`backward_listing` is the reverse program in the same terms: which pullback runs, on which adjoint, adding to which.
"""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np

from ..check.records import WatchfulTape
from ..debug import saved_arrays
from ..tape import Record, Tape
from ..variable import strip

COLUMNS = ("", "name", "operation", "inputs", "shape", "dtype", "saves", "line", "adjoint")


def table(tape: Tape, rows: int | None = None, width: int | None = None) -> str:
    """The tape's records as an aligned table, elided in the middle if there are more than `rows`, cut to `width`.

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
    count, lines_of = len(tape.records), source_lines(tape)
    shown = list(range(count))
    if rows is not None and count > rows:
        shown = [*range(rows - rows // 2), *range(count - rows // 2, count)]
    lines = [COLUMNS, *(cells(tape, i, lines_of) for i in shown)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(COLUMNS))]
    used = _narrow(widths, [c for c in range(len(COLUMNS)) if any(line[c] for line in lines[1:])], width)
    text = ["  ".join(_cut(line[c], widths[c]).ljust(widths[c]) for c in used).rstrip() for line in lines]
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


def operation(record: Record) -> str:
    """The primitive with its parameters: `rotary_pairs[inverse=False]`."""
    name = "variable" if record.primitive is None else str(record.primitive)
    if not record.kwargs:
        return name
    return name + "[" + ", ".join(f"{k}={_short(v)}" for k, v in record.kwargs.items()) + "]"


def dimensions(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "-"


def source_lines(tape: Tape) -> dict[int, str]:
    """The line that made each record, where a tape kept it: a WatchfulTape's, or debug mode's."""
    if isinstance(tape, WatchfulTape):
        return {entry.number: entry.line for entry in tape.entries}
    return dict(enumerate(getattr(tape, "lines", ())))


def norm(adjoint: Any) -> str:
    if adjoint is None:
        return ""
    return f"{math.sqrt(float(np.sum(np.square(np.asarray(strip(adjoint), float))))):.6g}"


def cells(tape: Tape, index: int, lines: dict[int, str]) -> tuple[str, ...]:
    """One record's entries under COLUMNS."""
    record = tape.records[index]
    saved = saved_in(record)
    names = ", ".join(dict.fromkeys(name for name, _ in saved))
    return (
        str(index),
        printable(tape.names.get(index, "")),
        operation(record),
        ", ".join(str(p) for p in record.parents if p is not None),
        dimensions(record.shape),
        str(record.dtype),
        f"{names} ({_distinct_bytes([saved]):,} B)" if saved else "",
        lines.get(index, ""),
        norm(tape.adjoints.get(index)),
    )


def backward_listing(tape: Tape) -> str:
    """The reverse sweep from the last record, one line per pullback: what it reads, and what it adds to.

    d7 is the adjoint of record 7; `=` marks the first contribution to an adjoint, `+=` a later one.

    >>> tape = Tape()
    >>> x = tape.variable([3.0, 4.0], name="x")
    >>> y = np.sum(x * x)
    >>> print(backward_listing(tape))
    d2 = 1
    d1  = sum'(d2)
    d0  = multiply'0(d1)  saves y (16 B)  # x
    d0 += multiply'1(d1)  saves x (16 B)  # x
    """
    last = max(tape.adjoints, default=len(tape.records) - 1)
    if last < 0:
        return ""
    reached, lines = {last}, [f"d{last} = 1" if tape.records[last].shape == () else f"d{last} = cotangent"]
    for index in range(last, -1, -1):
        record = tape.records[index]
        if index not in reached:
            continue
        several = len([p for p in record.parents if p is not None]) > 1
        for position, parent in enumerate(record.parents):
            if parent is None:
                continue
            kept = record.pullbacks[position] if isinstance(record.pullbacks, tuple) else record.pullbacks
            saved = saved_in(record._replace(pullbacks=(kept,)))
            text = f"d{parent} {'+=' if parent in reached else ' ='} {operation(record)}'"
            text += f"{position if several else ''}(d{index})"
            if saved:
                names = ", ".join(dict.fromkeys(name for name, _ in saved))
                text += f"  saves {names} ({_distinct_bytes([saved]):,} B)"
            lines.append(text + (f"  # {printable(tape.names[parent])}" if parent in tape.names else ""))
            reached.add(parent)
    return "\n".join(lines)


def printable(text: str) -> str:
    """A name on one line, whatever is in it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _narrow(widths: list[int], used: list[int], width: int | None) -> list[int]:
    """Make the widest columns narrower, in place, until a line fits; the columns that are shown."""
    while width is not None and sum(widths[c] for c in used) + 2 * (len(used) - 1) > width:
        widest = max(used, key=lambda c: widths[c])
        if widths[widest] <= 6:
            break
        widths[widest] -= 1
    return used


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


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
    text = printable(repr(value))
    return text if len(text) <= 24 else text[:21] + "…"


def terminal_size() -> tuple[int, int]:
    """Columns of the terminal, and how many records of a printed tape fit it, at least 20."""
    size = shutil.get_terminal_size((120, 40))
    return size.columns, max(20, size.lines - 4)
