"""Variables: arrays that a tape watches, and how NumPy's calls on them find their rules.

NumPy hands every call that meets a Variable to it (`__array_ufunc__`, `__array_function__`; NEP 13 and 18), and the
Variable looks the function up in the registry that `rules/` fills. A function that is not there is an error that
says what to do: nothing leaves the tape silently.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import tree as trees
from .errors import explain

if TYPE_CHECKING:
    from .tape import Tape

REGISTRY: dict[Any, Callable] = {}
"""From NumPy's functions, and (ufunc, method) pairs, to what runs when they are called on Variables."""

NONDIFFERENTIABLE: set[Any] = set()
"""NumPy's functions whose derivative is zero or undefined: on Variables they give plain arrays."""

REFUSED: dict[Any, str] = {}
"""NumPy's functions that have no rule on purpose, with the reason and what to use instead."""


class Variable:
    """An array whose operations are recorded; made by `Tape.variable` and by operations on other Variables.

    Operators, NumPy's functions and ndarray's methods work on it; what would silently leave the tape is an error.
    `value` leaves it on purpose: a read-only view of the array, since pullbacks may need it as it is, or, when tapes
    are nested, a Variable of an older tape.
    """

    __slots__ = ("index", "raw", "tape")  # raw is the value itself, for the engine
    __hash__ = None  # type: ignore[assignment]  # == compares elementwise, as for arrays

    def __init__(self, value: Any, tape: Tape, index: int):
        self.raw = value
        self.tape = tape
        self.index = index

    @property
    def value(self) -> Any:
        if not isinstance(self.raw, np.ndarray):
            return self.raw
        view = self.raw.view()
        view.flags.writeable = False
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        return self.raw.shape

    @property
    def dtype(self) -> np.dtype:
        return self.raw.dtype

    @property
    def ndim(self) -> int:
        return self.raw.ndim

    @property
    def size(self) -> int:
        return self.raw.size

    def __len__(self) -> int:
        return len(self.raw)

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("a 0-d Variable can't be iterated over; it is a single number")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        label = self.tape.names.get(self.index, f"%{self.index}")
        return f"Variable({self.raw!r}, shape={self.shape}, dtype={self.dtype}, record={label})"

    def _leaves_tape(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…): "
            "use np.stack([x, y]) to make an array of Variables, or x.value to leave the tape on purpose"
        )

    __array__ = __float__ = __int__ = __index__ = __complex__ = item = tolist = _leaves_tape

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(f"a Variable can't be formatted by {spec!r}: format its value, f'{{x.value:{spec}}}'")
        return str(self)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            "a Variable can't be changed in place: use np.where, np.concatenate or ng.set_at(x, index, value)"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Variable belongs to its tape and can't be copied or pickled; copy or pickle x.value")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            return _dispatch((ufunc, method), getattr(ufunc, method), inputs, kwargs)
        unknown = kwargs.keys() - ({"out", "axis"} if ufunc is np.vecdot else {"out"})
        if unknown and ufunc not in NONDIFFERENTIABLE:
            raise TypeError(
                f"np.{ufunc.__name__} with {', '.join(sorted(kwargs))}= can't be differentiated: use np.where in "
                "place of where=, and .astype in place of dtype="
            )
        return _dispatch(ufunc, ufunc, inputs, kwargs)

    def __array_function__(self, function: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        return _dispatch(function, function, args, kwargs)

    if TYPE_CHECKING:  # operators and ndarray's methods are attached by rules/, which has their primitives

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __add__
        __matmul__ = __rmatmul__ = __mod__ = __floordiv__ = __lt__ = __le__ = __gt__ = __ge__ = __add__


def strip(x: Any) -> Any:
    """The plain array behind a Variable, off every tape; likewise for the items of lists and tuples."""
    while type(x) is Variable:
        x = x.value
    return type(x)(map(strip, x)) if type(x) in (list, tuple) else x


def stop_gradient(x: Any) -> Any:
    """The plain arrays behind a tree of Variables: constants for every derivative.

    >>> import npgrad as ng
    >>> ng.grad(lambda x: x * ng.stop_gradient(x))(3.0)
    array(3.)
    """
    return trees.map(strip, x)


def implements(*functions: Any) -> Callable[[Callable], Callable]:
    """Decorate a function, written in terms of others, as what NumPy's `functions` do on Variables."""

    def register(implementation: Callable) -> Callable:
        REGISTRY.update(dict.fromkeys(functions, implementation))
        return implementation

    return register


def nondifferentiable(*functions: Any) -> None:
    """Declare functions of NumPy that give plain arrays on Variables: comparisons, argmax, sign, floor, shape…"""
    NONDIFFERENTIABLE.update(functions)


def _dispatch(key: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    out = kwargs.pop("out", None)
    if out is None and len(args) > 1 and key is function and type(key) is not np.ufunc:  # NumPy names a ufunc's out
        out = next(iter(args[_out_place(key) :]), None)
    if out is not None:
        raise TypeError(f"{_name(key)} with out= would write behind the tape's back (x += y does too): use its result")
    implementation = REGISTRY.get(key)
    if implementation is None and key in NONDIFFERENTIABLE:
        implementation = function
        args, kwargs = tuple(map(strip, args)), {name: strip(value) for name, value in kwargs.items()}
    elif implementation is None:
        raise TypeError(
            f"{_name(key)} can't be differentiated: {REFUSED[key]}"
            if key in REFUSED
            else f"npgrad has no rule for {_name(key)}: write it in terms of functions that have one, register a rule "
            "with ng.primitive, or pass x.value if its result is meant as a constant"
        )
    elif hasattr(implementation, "rules") and not any(type(a) is Variable for a in (*args, *kwargs.values())):
        raise TypeError(f"{_name(key)} got a Variable inside a list: make an array of it with np.stack first")
    try:
        return implementation(*args, **kwargs)
    except Exception as error:
        explain(error, _name(key), args, kwargs)
        raise


@functools.cache
def _out_place(function: Callable) -> int:
    """Where among the positional arguments NumPy's function takes its `out`; beyond them if it doesn't."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # NumPy 2.0's np.dot and np.concatenate tell none, what stands for them here does
        signature = inspect.signature(REGISTRY.get(function, _dispatch))
    names = [p.name for p in signature.parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return names.index("out") if "out" in names else sys.maxsize


def _name(key: Any) -> str:
    if isinstance(key, tuple):
        return f"np.{key[0].__name__}.{key[1]}"
    return f"{(getattr(key, '__module__', None) or 'numpy').replace('numpy', 'np', 1)}.{key.__name__}"
