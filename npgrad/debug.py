"""Debug mode: tapes that watch every operation, and stop at the first thing that goes wrong.

`with ng.debug():` makes every tape created inside it, by `grad` and its kin too, a `DebugTape`. It keeps the source
line of each record, and raises `DebugError` at the first NaN or infinity that an operation creates, forwards or
backwards, at the first array that changed between a record's forward and its pullback, and at a pullback that changes
its cotangent.
Outside the block nothing of it runs. The mode is local to the context: other threads and tasks are not affected.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .ops import causal_mask
from .tape import TAPE_KIND, Tape
from .variable import Variable, strip

_OURS = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)
_DOUBLE_WHERE = (
    ": a cotangent of 0 met an infinite slope, as when np.where leaves out a branch that is not finite. Make the "
    "branch harmless where it is left out: np.where(ok, f(np.where(ok, x, 1.0)), 0.0)"
)


class DebugError(FloatingPointError):
    """What debug mode found: the record, its primitive, the source line that recorded it, and the fault."""


@contextlib.contextmanager
def debug() -> Iterator[None]:
    """Watch every tape that is created in this block; see the module's documentation.

    >>> import npgrad as ng
    >>> with ng.debug(), np.errstate(all="ignore"):
    ...     ng.grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0))(0.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    npgrad.debug.DebugError: record %1 (sqrt) at ...: its adjoint is NaN ...: a cotangent of 0 met an infinite slope...
    """
    token = TAPE_KIND.set(DebugTape)
    try:
        yield
    finally:
        TAPE_KIND.reset(token)


class DebugTape(Tape):
    """A tape that checks each record as it is made and as it is swept; `lines` has each record's source line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def record(self, primitive: Any, out: Any, parents: tuple, pullbacks: Any, args: Any, kwargs: Any) -> Variable:
        line = source_line()
        label = f"record %{len(self.records)} ({primitive}) at {line}"
        if primitive is not None:
            _check_created(label, "value", out, args, allowed=primitive is causal_mask)
        if isinstance(pullbacks, tuple):
            watched: Any = tuple(_watch(pullback, label) for pullback in pullbacks)
        else:
            watched = _watch(pullbacks, label)
        variable = super().record(primitive, out, parents, watched, args, kwargs)
        self.lines.append(line)
        return variable


def source_line() -> str:
    """Where the code outside npgrad and NumPy is now: `file.py:12`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _NUMPY)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def saved_arrays(pullback: Callable, name: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays that a pullback's closure keeps alive, by name, those of functions inside it included."""
    if isinstance(pullback, functools.partial):
        for value in (*pullback.args, *pullback.keywords.values()):
            yield from saved_arrays(value, name)
        pullback = pullback.func
    if isinstance(pullback, (np.ndarray, Variable)):
        yield name, pullback
    elif isinstance(pullback, (list, tuple)):
        for value in pullback:
            yield from saved_arrays(value, name)
    cells = getattr(pullback, "__closure__", None) or ()
    for cell_name, cell in zip(getattr(getattr(pullback, "__code__", None), "co_freevars", ()), cells):
        try:
            yield from saved_arrays(cell.cell_contents, cell_name)
        except ValueError:  # a cell that is not filled yet
            continue


def _watch(pullback: Callable, label: str) -> Callable:
    """The pullback, with its contract checked at each call."""
    before = _checksums(pullback)

    @functools.wraps(pullback)
    def watched(g: Any) -> Any:
        for name, checksum in _checksums(pullback).items():
            if before.get(name) != checksum:
                raise DebugError(f"{label}: the array {name!r} that its pullback kept was changed after the forward")
        cotangent = _checksum(g)
        found = pullback(g)
        if _checksum(g) != cotangent:
            raise DebugError(f"{label}: its pullback changed the cotangent that it was given")
        for gradient in found if isinstance(found, tuple) else (found,):
            if gradient is not None:
                _check_created(label, "adjoint", gradient, [g, *(a for _, a in saved_arrays(pullback))], zero=g)
        return found

    return watched


def _check_created(
    label: str, what: str, out: Any, inputs: Sequence[Any], allowed: bool = False, zero: Any = None
) -> None:
    """Raise if `out` has a NaN, or an infinity, that none of the inputs had."""
    value = np.asarray(strip(out))
    if np.isfinite(value).all():
        return
    given = [np.asarray(a) for a in map(strip, inputs) if np.asarray(strip(a)).dtype.kind == "f"]
    for fault, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        if test(value).any() and not any(test(a).any() for a in given) and not (fault == "infinite" and allowed):
            index = tuple(int(i) for i in np.argwhere(test(value))[0])
            hint = _DOUBLE_WHERE if zero is not None and (np.asarray(strip(zero)) == 0).any() else ""
            raise DebugError(f"{label}: its {what} is {fault} at {index or 'its only element'}{hint}")


def _checksums(pullback: Callable) -> dict[str, int]:
    return {f"{name} ({i})" if i else name: _checksum(a) for i, (name, a) in enumerate(saved_arrays(pullback))}


def _checksum(a: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(strip(a)).tobytes())
