"""Debug mode: tapes that watch every operation, and stop at the first thing that goes wrong.

`with ng.debug():` makes every tape created inside it, by `grad` and its kin too, a `DebugTape`. It keeps the source
line of each record, and raises `DebugError` at the first NaN, or infinity that an operation creates, forwards or
backwards (an infinity that was put in on purpose, as a mask's, may pass), and where a pullback breaks its contract: the
arrays that it kept are as they were at the forward, it changes neither them nor its cotangent, and what it returns has
its argument's shape, or one that broadcasting made of it, and no wider dtype than argument and result.
Outside the block nothing of it runs. The mode is local to the context: other threads and tasks are not affected.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .ops import causal_mask
from .tape import TAPE_KIND, Record, Tape
from .variable import Variable, strip

_OURS, _NUMPY = (os.path.dirname(file) for file in (__file__, np.__file__))
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

    def variable(self, array: Any, name: str | None = None) -> Variable:
        variable = super().variable(array, name)
        label = f"record %{variable.index} (variable {name or ''}) at {self.lines[-1]}".replace(" )", ")")
        _check_finite(label, "value", variable, [variable])
        return variable

    def record(self, primitive: Any, out: Any, parents: tuple, pullbacks: Any, args: Any, kwargs: Any) -> Variable:
        line = source_line()
        label = f"record %{len(self.records)} ({primitive}) at {line}"
        watched = pullbacks
        if primitive is not None:
            _check_finite(label, "value", out, args, infinity_allowed=primitive is causal_mask)
            arguments = [None if parent is None else self.records[parent] for parent in parents]
            precision = np.asarray(strip(out)).dtype
            if isinstance(pullbacks, tuple):
                watched = tuple(_watch(p, label, [a], precision) for p, a in zip(pullbacks, arguments))
            else:
                watched = _watch(pullbacks, label, arguments, precision)
        variable = super().record(primitive, out, parents, watched, args, kwargs)
        self.lines.append(line)
        return variable


def source_line() -> str:
    """Where the code outside npgrad and NumPy is now: `file.py:12`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _NUMPY)):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def saved_arrays(pullback: Any, name: str = "", seen: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The arrays that a pullback's closure keeps alive, by name, those of functions inside it included."""
    if isinstance(pullback, (np.ndarray, Variable)):
        yield name, pullback
    if id(pullback) in seen:  # a function that calls itself
        return
    inside: list[tuple[str, Any]] = []
    if isinstance(pullback, (list, tuple)):
        inside += [(name, value) for value in pullback]
    if isinstance(pullback, functools.partial):
        inside += [(name, value) for value in (pullback.func, *pullback.args, *pullback.keywords.values())]
    cells = getattr(pullback, "__closure__", None) or ()
    for cell_name, cell in zip(getattr(getattr(pullback, "__code__", None), "co_freevars", ()), cells):
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            inside.append((cell_name, cell.cell_contents))
    for inner, value in inside:
        yield from saved_arrays(value, inner, (*seen, id(pullback)))


def _watch(pullback: Callable, label: str, arguments: list[Record | None], precision: np.dtype) -> Callable:
    """The pullback, with its contract checked at each call; a fused one returns a gradient for each argument."""
    before = _checksums(pullback)

    @functools.wraps(pullback)
    def watched(g: Any) -> Any:
        _check_unchanged(before, pullback, label, "after the forward")
        cotangent = _checksum(g)
        found = pullback(g)
        if _checksum(g) != cotangent:
            raise DebugError(f"{label}: its pullback changed the cotangent that it was given")
        _check_unchanged(before, pullback, label, "by it")
        for argument, gradient in zip(arguments, found if isinstance(found, (tuple, list)) else [found]):
            if argument is not None and gradient is not None:
                _check_contract(label, gradient, argument, precision)
                _check_finite(label, "adjoint", gradient, [g, *(a for _, a in saved_arrays(pullback))], cotangent=g)
        return found

    return watched


def _check_unchanged(before: dict[str, int], pullback: Callable, label: str, when: str) -> None:
    for name, checksum in _checksums(pullback).items():
        if before.get(name) != checksum:
            raise DebugError(f"{label}: the array {name!r} that its pullback kept was changed {when}")


def _check_contract(label: str, gradient: Any, argument: Record, precision: np.dtype) -> None:
    shape, extra = np.shape(gradient), np.ndim(gradient) - len(argument.shape)
    if extra < 0 or any(m not in (1, n) for n, m in zip(shape[extra:], argument.shape)):
        raise DebugError(f"{label}: its pullback gave shape {shape} for an argument of shape {argument.shape}")
    dtype = getattr(gradient, "dtype", argument.dtype)  # a Python number takes any precision
    if dtype.kind != "f" or not np.can_cast(dtype, np.result_type(precision, argument.dtype)):
        raise DebugError(
            f"{label}: its pullback gave {dtype} for an argument of {argument.dtype} and a result of {precision}"
        )


def _check_finite(
    label: str, what: str, out: Any, inputs: Sequence[Any], infinity_allowed: bool = False, cotangent: Any = None
) -> None:
    """Raise if `out` has a NaN, or an infinity where none of the inputs had one."""
    value = np.asarray(strip(out))
    if np.isfinite(value).all():
        return
    given = [np.asarray(a) for a in map(strip, inputs) if np.asarray(strip(a)).dtype.kind == "f"]
    for fault, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        if not test(value).any():
            continue
        if fault == "infinite" and (infinity_allowed or any(test(a).any() for a in given)):
            continue
        index = tuple(int(i) for i in np.argwhere(test(value))[0])
        hint = _DOUBLE_WHERE if cotangent is not None and (np.asarray(strip(cotangent)) == 0).any() else ""
        raise DebugError(f"{label}: its {what} is {fault} at {index or 'its only element'}{hint}")


def _checksums(pullback: Callable) -> dict[str, int]:
    return {f"{name} ({i})" if i else name: _checksum(a) for i, (name, a) in enumerate(saved_arrays(pullback))}


def _checksum(a: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(strip(a)).tobytes())
