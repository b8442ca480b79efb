"""The tape: what happened, in the order in which it happened, and the sweep that runs it backwards.

A `Tape` watches arrays, wrapped as Variables. Each operation on them appends one `Record` to the tape: which
primitive ran, on which earlier records, and one *pullback* per parent, the function that turns the cotangent of the
result (the derivative of the final output with respect to it) into that parent's. A record can only refer to records
before it, so the list is in topological order, and differentiation is a loop from the last record to the first (a
Wengert list; Griewank & Walther, "Evaluating Derivatives", 2nd ed., section 3.2): no graph to search, no recursion,
no limit on depth. Records hold no values: only a pullback's closure keeps alive the arrays that it will need.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from operator import call
from typing import Any, NamedTuple

import numpy as np

from .errors import ReleasedTapeError, as_real, check_result, is_foreign
from .variable import Variable

_creation_numbers = itertools.count()

TAPE_KIND: ContextVar[type[Tape]] = ContextVar("TAPE_KIND")  # what `Tape()` makes: debug mode sets it


class Record(NamedTuple):
    """One line of a tape. A variable's has no primitive, no parents and no pullbacks.

    `pullbacks` are functions of the cotangent, one per parent, or a single function that returns the gradients of all
    arguments (a fused primitive; `parents` then lines up with its arguments, None for a constant).
    """

    primitive: Any
    parents: tuple[int | None, ...]
    pullbacks: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    kwargs: dict[str, Any] | None


_make_record = functools.partial(tuple.__new__, Record)  # half the time of Record(...), on the hot path
_shared = functools.lru_cache(256)(tuple)  # equal shapes as one object: an eighth of a record's memory


class Tape:
    """A list of records, and the reverse sweep over it.

    >>> tape = Tape()
    >>> x = tape.variable([1.0, 2.0, 3.0])
    >>> tape.gradient(np.sum(x * x), [x])
    [array([2., 4., 6.])]

    `names` maps the indices of named variables to their names, `adjoints` maps indices to cotangents after
    `gradient(..., retain=True)`. An operation is recorded on the newest tape among its arguments (by creation
    `number`), which makes nesting right without global state. A tape belongs to the thread that uses it.
    """

    def __new__(cls) -> Tape:
        return super().__new__(TAPE_KIND.get(cls) if cls is Tape else cls)

    def __init__(self) -> None:
        self.number = next(_creation_numbers)
        self.records: list[Record] = []
        self.names: dict[int, str] = {}
        self.adjoints: dict[int, Any] = {}
        self.released = False

    def variable(self, array: Any, name: str | None = None) -> Variable:
        """Watch a float array, a number, a list of numbers, or a Variable of an older tape; TypeError if not floats.

        The array is not copied: leave it unchanged while the tape is in use.
        """
        if type(array) is Variable:
            if array.tape.number >= self.number:
                raise ValueError("only a Variable of an older tape can become a variable of this one")
        elif type(array) is not np.ndarray or array.dtype.kind != "f":
            array = as_real(array, name or "a variable")
        variable = self.record(None, array, (), (), (), None)
        if name is not None:
            self.names[variable.index] = name
        return variable

    def record(self, primitive: Any, out: Any, parents: tuple, pullbacks: Any, args: Any, kwargs: Any) -> Variable:
        """Append one record and return its Variable. `args` are the values that `primitive` was called with."""
        if self.released:
            raise ReleasedTapeError()
        try:
            dtype = out.dtype
        except AttributeError:  # a forward that returns a plain number or a list
            dtype = (out := np.asarray(out)).dtype
        if dtype.kind != "f" or (type(out) is not np.ndarray and is_foreign(out)):
            check_result(primitive, out)
        variable = Variable(out, self, len(self.records))
        self.records.append(_make_record((primitive, parents, pullbacks, _shared(out.shape), dtype, kwargs or None)))
        return variable

    def gradient(self, output: Variable, inputs: Sequence, cotangent: Any = None, *, retain: bool = False) -> list:
        """The gradient of sum(cotangent * output) with respect to each input, in the order of `inputs`.

        A scalar output needs no cotangent; otherwise it has the output's shape. An input that the output doesn't
        depend on has a zero gradient. Gradients have their input's shape and dtype, and share no memory.
        The sweep releases the tape; `retain=True` keeps its records, and each one's cotangent in `adjoints`.
        """
        if isinstance(inputs, Variable):
            raise TypeError("inputs must be a list of Variables: tape.gradient(y, [x])")
        if cotangent is None and np.shape(output) != ():
            raise ValueError(f"an output of shape {output.shape} needs a cotangent of that shape, or np.sum first")
        cotangents = [1.0 if cotangent is None else cotangent]
        return self.sweep([output], cotangents, inputs, release=not retain, retain=retain)

    def sweep(self, outputs: Sequence, cotangents: Sequence, inputs: Sequence, *, release=True, retain=False) -> list:
        """`gradient` for any number of outputs; keeps the records unless `release`, the adjoints if `retain`."""
        for v in (*outputs, *inputs):
            if getattr(v, "tape", None) is not self:
                got = "a Variable of another" if isinstance(v, Variable) else f"a {type(v).__name__}"
                raise TypeError(f"outputs and inputs must be Variables of this tape, not {got}")
        if self.released:
            raise ReleasedTapeError()
        adjoints: dict[int, Any] = {}
        own: set[int] = set()  # indices whose adjoint the sweep itself allocated: only these are added to in place
        for output, cotangent in zip(outputs, cotangents, strict=True):
            _accumulate(adjoints, own, output.index, _seed(output, cotangent, retain))
        wanted = {v.index for v in inputs}
        records, last = self.records, max(adjoints, default=-1)
        if release:
            self.released = True
            del records[last + 1 :]
        for index in range(last, min(wanted, default=0) - 1, -1):
            record = records.pop() if release else records[index]
            g = adjoints.pop(index, None)
            if g is None:  # the outputs don't depend on it
                continue
            if retain or index in wanted:
                adjoints[index] = g
            pullbacks = record.pullbacks
            if pullbacks == ():  # a variable
                continue
            gradients = map(call, pullbacks, itertools.repeat(g)) if type(pullbacks) is tuple else pullbacks(g)
            for parent, gradient in zip(record.parents, gradients):
                if parent is None:
                    continue
                to = records[parent]
                if getattr(gradient, "shape", None) != to.shape or gradient.dtype is not to.dtype:
                    gradient = _fit(gradient, to, record)
                if parent in adjoints:
                    _accumulate(adjoints, own, parent, gradient)
                else:
                    adjoints[parent] = gradient
            del record, pullbacks, gradients, g  # let go before the next record needs memory
            gradient = None
        if release:
            records.clear()
        self.adjoints = adjoints if retain else {}
        taken = {id(a) for a in self.adjoints.values()}
        return [_unaliased(adjoints.get(v.index), v, taken) for v in inputs]


def _accumulate(adjoints: dict, own: set, index: int, gradient: Any) -> None:
    """Add to an adjoint, in place only where the sweep made the array: another consumer may hold any other one."""
    total = adjoints.get(index)
    if total is None:
        adjoints[index] = gradient
    elif index in own and type(gradient) is type(total) is np.ndarray:
        np.add(total, gradient, out=total)
    else:
        adjoints[index] = total = total + gradient
        if type(total) is np.ndarray:
            own.add(index)


def _seed(output: Variable, cotangent: Any, copy: bool) -> Any:
    """The cotangent in its output's dtype, as a view that can't be written: it is the caller's, or to be retained."""
    if np.shape(cotangent) != output.shape:
        raise ValueError(f"the cotangent has shape {np.shape(cotangent)}, but the output has shape {output.shape}")
    if isinstance(cotangent, Variable):
        return cotangent if cotangent.dtype == output.dtype else cotangent.astype(output.dtype)
    if np.asarray(cotangent).dtype.kind not in "fiub":
        raise TypeError(f"a cotangent must be of real numbers, not {np.asarray(cotangent).dtype}")
    copy = copy or type(output.raw) is Variable  # recorded, it must last until the outer tape's sweep
    seed = np.array(cotangent, output.dtype, copy=copy or None).view()
    seed.flags.writeable = False
    return seed


def _fit(gradient: Any, to: Record, record: Record) -> Any:
    """Give a pullback's result its argument's shape, summing over axes that were broadcast, and its dtype."""
    shape, extra = np.shape(gradient), np.ndim(gradient) - len(to.shape)
    if not isinstance(gradient, Variable) and np.asarray(gradient).dtype.kind not in "fiub":
        raise TypeError(f"a pullback of {record.primitive} gave {gradient!r}, which is no array of real numbers")
    if shape != to.shape:
        padded = (1,) * extra + to.shape
        if extra < 0 or any(n != m and m != 1 for n, m in zip(shape, padded)):
            raise ValueError(f"a pullback of {record.primitive} gave shape {shape} for an argument of shape {to.shape}")
        axes = tuple(i for i, (n, m) in enumerate(zip(shape, padded)) if i < extra or n != m)
        gradient = np.reshape(np.sum(gradient, axis=axes), to.shape)
    elif not isinstance(gradient, (np.ndarray, np.generic, Variable)):
        gradient = np.asarray(gradient)
    return gradient if gradient.dtype == to.dtype else gradient.astype(to.dtype)


def _unaliased(gradient: Any, v: Variable, taken: set[int]) -> Any:
    """A gradient as the caller's own array: zeros where nothing arrived, a copy where memory would be shared."""
    if gradient is None or isinstance(gradient, Variable):
        return np.zeros(v.shape, v.dtype) if gradient is None else gradient
    fresh = isinstance(gradient, np.ndarray) and gradient.base is None and gradient.flags.carray
    if not fresh or id(gradient) in taken:
        gradient = np.array(gradient, order="C")
    taken.add(id(gradient))
    return gradient
