"""A tape as text: one line per record, in the order of execution.

Each line has the record's index and name, its operation with parameters, its parents, shape and dtype, what its
pullback keeps alive, the source line if the tape watched for it, and after a retained sweep the norm of its adjoint.
`backward_listing` is the reverse program in the same terms: which pullback runs, on which adjoint, adding to which.
"""

from __future__ import annotations

import inspect
import math
import shutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..check.records import Entry, WatchfulTape
from ..debug import saved_arrays
from ..tape import Record, Tape
from ..variable import Variable, strip

COLUMNS = ("", "name", "operation", "inputs", "shape", "dtype", "saves", "line", "adjoint")
LEAST = (6, 6, 12, 6, 6, 8, 9, 8, 12)  # how far a column is narrowed before others are left out
DISPENSABLE = ("line", "dtype", "saves", "shape", "adjoint")  # the order in which they are: 40 columns remain
CUT_IN_FRONT = ("name", "saves", "line")  # what tells them apart stands at the end


def table(tape: Tape, rows: int | None = None, width: int | None = None) -> str:
    """The tape's records as an aligned table, elided in the middle if there are more than `rows`, cut to `width`.

    Narrow terminals get fewer columns; the least width that is legible is 40.

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
    count, kept = len(tape.records), entries(tape)
    shown = list(range(count))
    if rows is not None and count > rows:
        shown = [*range(rows - rows // 2), *range(count - rows // 2, count)]
    lines = [COLUMNS, *(cells(tape, i, kept.get(i)) for i in shown)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(COLUMNS))]
    used = _narrow(widths, [c for c in range(len(COLUMNS)) if any(line[c] for line in lines[1:])], width)
    cut = [(c, widths[c], COLUMNS[c] in CUT_IN_FRONT) for c in used]
    text = ["  ".join(_cut(line[c], w, in_front).ljust(w) for c, w, in_front in cut).rstrip() for line in lines]
    if len(shown) < count:
        text.insert(1 + rows - rows // 2, f"… {count - len(shown)} more records …")  # type: ignore[operator]
    saved = _distinct_bytes([saved_in(r) for r in tape.records])
    text.append(f"{count} records, {saved:,} bytes saved" + ", released" * tape.released)
    return "\n".join(text if width is None else [_cut(line, width, in_front=False) for line in text])


def saved_in(record: Record) -> list[tuple[str, Any]]:
    """The names and arrays that a record's pullbacks keep alive, each array once."""
    pullbacks = record.pullbacks if isinstance(record.pullbacks, tuple) else (record.pullbacks,)
    found: dict[int, tuple[str, Any]] = {}
    for pullback in pullbacks:
        for name, a in saved_arrays(pullback):
            found.setdefault(id(a), (name, a))
    return list(found.values())


class Constant(NamedTuple):
    """An argument that is not on the tape: its position, None for a keyword's, and what the primitive calls it."""

    position: int | None
    name: str
    value: Any


def operation(record: Record, entry: Entry | None = None) -> str:
    """The primitive with its parameters: `rotary_pairs[inverse=True]`, `divide[x2=2.0]`; arrays are left out.

    All of them if the tape was a WatchfulTape, which has an `entry` for the record; else what the record keeps, and
    of positional ones those that a pullback needs.
    """
    if record.primitive is None:
        return "variable"
    shown = [c for c in constants(record, entry) if c.position is None or not is_array(c.value)]
    parameters = ", ".join(f"{c.name}={brief(c.value)}" for c in shown)
    return f"{record.primitive}[{parameters}]" if parameters else str(record.primitive)


def constants(record: Record, entry: Entry | None) -> list[Constant]:
    """The arguments of an operation that are not on the tape, without positional ones that are the default's."""
    if entry is None:
        found = _kept_constants(record)
    else:
        given = {i: a for i, a in enumerate(entry.args) if i not in entry.positions}
        found = [Constant(i, parameter(record.primitive, i), a) for i, a in given.items()]
    defaults = {p.name: p.default for p in record.primitive._parameters}
    found = [c for c in found if not _is_default(c.value, defaults.get(c.name))]
    return found + [Constant(None, name, value) for name, value in (record.kwargs or {}).items()]


def parameter(primitive: Any, position: int) -> str:
    """What a primitive calls an argument, in NumPy's words: x1 and x2 for a ufunc of two."""
    if isinstance(primitive.forward, np.ufunc):
        return "x" if primitive.forward.nin == 1 else f"x{position + 1}"
    names = [p.name for p in primitive._parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return names[position] if position < len(names) else f"argument {position}"


def is_array(value: Any) -> bool:
    """Whether this is an array, on a tape or not, of at least one axis."""
    return isinstance(value, (np.ndarray, Variable)) and value.ndim > 0


def brief(value: Any) -> str:
    """A parameter in a few characters."""
    value = strip(value)
    if is_array(value):
        return f"{value.dtype}[{dimensions(value.shape)}]"
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
        value = value.item()
    if isinstance(value, slice):
        ends = ["" if end is None else brief(end) for end in (value.start, value.stop, value.step)]
        text = ":".join(ends if ends[2] else ends[:2])
    elif isinstance(value, (tuple, list)):
        text = ", ".join(map(brief, value[:8]))
        text = f"[{text}]" if isinstance(value, list) else f"({text},)" if len(value) == 1 else f"({text})"
    elif isinstance(value, float) and len(repr(value)) > 8:
        text = f"{value:.6g}"
    elif value is Ellipsis or isinstance(value, np.dtype):
        text = "..." if value is Ellipsis else str(value)
    else:
        text = getattr(value, "__name__", None) or repr(value)
    text = printable(text)
    return text if len(text) <= 24 else text[:23] + "…"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and type(value) in (int, float, str) and value == default)


def _kept_constants(record: Record) -> list[Constant]:
    """Arguments that are no arrays and that a pullback's closure holds, under the name that its rule gives them."""
    primitive, found = record.primitive, {}
    if isinstance(record.pullbacks, tuple):
        rules = [(rule, 1) for rule in (*primitive.rules, primitive.each) if rule]  # called as rule(out, *args)
        pullbacks = record.pullbacks
    else:
        rules, pullbacks = [(primitive.forward, 0)], (record.pullbacks,)
    held = dict(pair for pullback in pullbacks for pair in _closure(pullback))
    for rule, skipped in rules:
        names = rule.__code__.co_varnames[skipped : rule.__code__.co_argcount] if hasattr(rule, "__code__") else ()
        for i, name in enumerate(names):
            if name in held and not isinstance(held[name], (np.ndarray, Variable)):
                found[i] = Constant(i, parameter(primitive, i), held[name])
    return [found[i] for i in sorted(found)]


def _closure(function: Callable) -> Iterator[tuple[str, Any]]:
    """The names and contents of a function's cells, those of functions in its cells first."""
    function = inspect.unwrap(function)
    if inspect.isfunction(function):
        held = inspect.getclosurevars(function).nonlocals
        for content in held.values():
            if inspect.isfunction(content):
                yield from _closure(content)
        yield from held.items()


def dimensions(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "-"


def entries(tape: Tape) -> dict[int, Entry]:
    """What a WatchfulTape kept of each operation, by its record's number; nothing on other tapes."""
    return {entry.number: entry for entry in tape.entries} if isinstance(tape, WatchfulTape) else {}


def source_line(tape: Tape, index: int, entry: Entry | None) -> str:
    """The line that made a record, where the tape kept it: a WatchfulTape, or debug mode's."""
    if entry is not None:
        return entry.line
    lines = getattr(tape, "lines", ())
    return lines[index] if index < len(lines) else ""


def norm(adjoint: Any) -> str:
    if adjoint is None:
        return ""
    return f"{math.sqrt(float(np.sum(np.square(np.asarray(strip(adjoint), float))))):.6g}"


def cells(tape: Tape, index: int, entry: Entry | None) -> tuple[str, ...]:
    """One record's entries under COLUMNS."""
    record = tape.records[index]
    saved = saved_in(record)
    names = ", ".join(dict.fromkeys(name for name, _ in saved))
    return (
        str(index),
        printable(tape.names.get(index, "")),
        operation(record, entry),
        ", ".join(str(p) for p in record.parents if p is not None),
        dimensions(record.shape),
        str(record.dtype),
        f"{names} ({_distinct_bytes([saved]):,} B)" if saved else "",
        source_line(tape, index, entry),
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
    kept = entries(tape)
    reached, lines = {last}, [f"d{last} = 1" if tape.records[last].shape == () else f"d{last} = cotangent"]
    for index in range(last, -1, -1):
        record = tape.records[index]
        if index not in reached:
            continue
        several = len([p for p in record.parents if p is not None]) > 1
        for position, parent in enumerate(record.parents):
            if parent is None:
                continue
            pullback = record.pullbacks[position] if isinstance(record.pullbacks, tuple) else record.pullbacks
            saved = saved_in(record._replace(pullbacks=(pullback,)))
            text = f"d{parent} {'+=' if parent in reached else ' ='} {operation(record, kept.get(index))}'"
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
    """Make the widest columns narrower, in place, until a line fits, or leave one out; the columns that are shown."""
    if width is None:
        return used
    least = [min(w, n) for w, n in zip(widths, LEAST)]
    for name in DISPENSABLE:
        if sum(least[c] for c in used) + 2 * (len(used) - 1) > width:
            used = [c for c in used if COLUMNS[c] != name]
    while sum(widths[c] for c in used) + 2 * (len(used) - 1) > width:
        widest = max(used, key=lambda c: widths[c] - least[c])
        if widths[widest] == least[widest]:
            break
        widths[widest] -= 1
    return used


def _cut(text: str, width: int, in_front: bool) -> str:
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if in_front else text[: width - 1] + "…"


def _distinct_bytes(saved: list[list[tuple[str, Any]]]) -> int:
    """The size of the arrays together, each one and each buffer counted once."""
    sizes: dict[int, int] = {}
    for found in saved:
        for _, a in found:
            a = strip(a)
            owner = a if a.base is None else a.base
            sizes[id(owner)] = max(sizes.get(id(owner), 0), a.nbytes)
    return sum(sizes.values())


def terminal_size() -> tuple[int, int]:
    """Columns of the terminal, and how many records of a printed tape fit it, at least 20."""
    size = shutil.get_terminal_size((120, 40))
    return size.columns, max(20, size.lines - 4)
