"""The audit: every registered primitive, users' too, checked at its declared examples on this machine.

Each example is checked as declared (float64), in float32, and with its arrays read-only and strided. A function that
is declared at fewer than three shapes is also checked at others, made of those: the smallest, shorter by one, stacked.
A primitive counts as covered if an example is declared for it or if some example records it, as np.concatenate's
records `join`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import check
from .. import tree as trees
from ..primitive import PRIMITIVES
from ..variable import _name
from .examples import EXAMPLES, Example
from .gradients import check_grads
from .records import trace
from .report import Report
from .subject import float_leaves, of_function

LEAST_SHAPES = 3


class Outcome(NamedTuple):
    """One function's checks: what it was called with, and what came out; `failures` are reports or error messages."""

    name: str
    arguments: str
    coordinates: int
    largest_error: float
    seconds: float
    failures: list[str]

    def __str__(self) -> str:
        verdict = f"{len(self.failures)} failed" if self.failures else "pass"
        cells = f"{self.name:<34} {self.coordinates:>7} coordinates  {self.largest_error:8.1e}  {self.seconds:6.2f} s"
        return f"{cells}  {verdict:<9} {self.arguments}"


def load_examples() -> dict[Any, list[Example]]:
    """EXAMPLES, after importing every module of this package that declares some."""
    for module in pkgutil.iter_modules(check.__path__):
        if module.name.startswith("examples_"):
            importlib.import_module(f"{check.__name__}.{module.name}")
    return EXAMPLES


def name_of_function(function: Any) -> str:
    """`np.exp`, `npgrad.ops.norm.rms_norm`: where a function lives and what it is called."""
    return _name(function) if hasattr(function, "__name__") else repr(function)


def audit() -> Iterator[Outcome]:
    """Check every function that has examples, one after another."""
    for function, examples in load_examples().items():
        started, reports, failures = time.perf_counter(), [], []
        examples = completed(examples)
        for label, of_arrays, args in (v for e in examples for v in variants(e)):
            report = checked(of_arrays, args)
            if isinstance(report, Report):
                reports.append(report)
            if not isinstance(report, Report) or not report:
                failures.append(f"{name_of_function(function)}, {label}: {report}")
        coordinates = sum(r.coordinates for r in reports)
        largest = max((r.largest_error for r in reports), default=0.0)
        arguments = "; ".join(dict.fromkeys(describe(e.args) for e in examples))
        yield Outcome(
            name_of_function(function), arguments, coordinates, largest, time.perf_counter() - started, failures
        )  # fmt: skip


def checked(function: Callable, args: tuple, order: int = 1) -> Report | str:
    """The report of a check that passes or fails, or the message of the error that it ends with."""
    try:
        return check_grads(function, *args, order=order)
    except check.GradientError as error:
        return error.report
    except Exception as error:  # an audit goes on after a broken rule, whatever it raises
        return f"{type(error).__name__}: {error}"


def completed(examples: list[Example]) -> list[Example]:
    """The declared examples, and others made of them where these have fewer than LEAST_SHAPES shapes."""
    found, known = [*examples], {shapes(e) for e in examples}
    changes = (_smallest, _shorter, _stacked)
    for e in (_changed(e, change) for e in examples for change in changes):
        if len(known) >= LEAST_SHAPES:
            break
        if shapes(e) not in known and _is_taken(e):
            found.append(e)
            known.add(shapes(e))
    return found


def shapes(example: Example) -> tuple[tuple[int, ...], ...]:
    """The shapes of an example's arrays."""
    return tuple(x.shape for x in trees.leaves(example.args) if isinstance(x, (np.ndarray, np.generic)))


def _is_taken(example: Example) -> bool:
    """Whether the function takes these arguments and gives finite numbers."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            outputs = float_leaves(example.function(*example.args, **example.kwargs))
    except Exception:  # some functions have just one shape
        return False
    return any(y.size for y in outputs) and all(np.isfinite(y).all() for y in outputs)


def _changed(example: Example, change: Callable) -> Example:
    return Example(example.function, trees.map(change, example.args), trees.map(change, example.kwargs))


def _smallest(x: Any) -> Any:
    return x[(slice(1),) * x.ndim] if isinstance(x, np.ndarray) else x


def _shorter(x: Any) -> Any:
    return x[tuple(slice(max(n - 1, 1)) for n in x.shape)] if isinstance(x, np.ndarray) else x


def _stacked(x: Any) -> Any:
    return np.stack([x, 0.75 * x]) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def variants(example: Example) -> Iterator[tuple[str, Callable, tuple]]:
    """The example as declared, in float32, and with strided, read-only arrays: a function of its arrays, and those."""
    called = describe(example.args)
    for label, change in (("float64", _same), ("float32", _single), ("strided", _strided)):
        yield f"{label} {called}", *of_arrays(_changed(example, change))


def of_arrays(example: Example) -> tuple[Callable, tuple]:
    """The example's function with all that is a plain number filled in, and what remains of its arguments."""
    arrays = (np.ndarray, np.generic)
    constants = {i: x for i, x in enumerate(example.args) if not any(isinstance(y, arrays) for y in trees.leaves(x))}
    if not constants:
        return functools.partial(example.function, **example.kwargs), example.args

    @functools.wraps(example.function)
    def function(*args: Any) -> Any:
        remaining = iter(args)
        every = [constants[i] if i in constants else next(remaining) for i in range(len(example.args))]
        return example.function(*every, **example.kwargs)

    return function, tuple(x for i, x in enumerate(example.args) if i not in constants)


def _same(x: Any) -> Any:
    return x


def _single(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == float else x


def _strided(x: Any) -> Any:
    """The same array as a read-only view of every other place of a larger one, in another order of axes."""
    if not isinstance(x, np.ndarray):
        return x
    large = np.zeros((*x.shape[::-1], 2), x.dtype)
    view = large[..., 0].T
    view[...] = x
    view.flags.writeable = False
    return view


def describe(args: tuple) -> str:
    """The arguments' shapes, or values where they are no arrays."""
    return ", ".join(
        str(x.shape).replace(" ", "") if isinstance(x, np.ndarray) else repr(x)[:20] for x in trees.leaves(args)
    )


def uncovered() -> list[str]:
    """The registered primitives that no example is declared for and none records."""
    covered: set[int] = set()
    for function, examples in load_examples().items():
        covered.add(id(function))
        for e in examples:
            with np.errstate(all="ignore"):
                covered |= _recorded(*of_arrays(e))
    return [name_of_function(p) for p in PRIMITIVES if not {id(p), id(p.forward)} & covered]


def _recorded(function: Callable, args: tuple) -> set[int]:
    try:
        return {id(entry.primitive) for entry in trace(of_function(function, args))}
    except Exception:  # a broken rule is the audit's to report
        return set()
