"""Transforms: from a function to its gradient, or to its value and its pullback.

Each runs the function on Variables of a new tape and sweeps back; what it returns may be transformed again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree as trees
from .errors import argument_names
from .tape import Tape
from .variable import Variable


def value_and_grad(f: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that returns `(f(*args), gradient)`, or `((value, aux), gradient)` with `has_aux`; see `grad`.

    >>> value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    chosen = tuple(argnums) if isinstance(argnums, (tuple, list)) else (operator.index(argnums),)  # type: ignore[arg-type]
    names = functools.cache(functools.partial(argument_names, f))  # reading a signature takes as long as ten records

    @functools.wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        tape, lifted, out = _run(f, args, kwargs, chosen, names)
        out, aux = _value_and_aux(f, out, has_aux)
        outputs = [out] if _is_on(tape, out) else []  # a result that doesn't depend on them has zero gradients
        gradients = iter(tape.sweep(outputs, [1.0] * len(outputs), trees.leaves([lifted[n] for n in chosen])))
        found = tuple([trees.filled(lifted[n], gradients) for n in chosen])
        return _values(tape, (out, aux) if has_aux else out), found if isinstance(argnums, (tuple, list)) else found[0]

    return differentiated


def grad(f: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that returns the gradient of the scalar f with respect to argument `argnums`.

    The gradient is a tree like that argument, a tuple of trees for a tuple of argnums; its leaves are new arrays of
    the argument's shapes and dtypes. With `has_aux`, f returns `(value, aux)` and the result is `(gradient, aux)`.
    ValueError if f's result is not a scalar, TypeError for a leaf that is not of floats.

    >>> grad(grad(np.sin))(0.5) == -np.sin(0.5)
    np.True_
    """
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def vjp(f: Callable, *args: Any) -> tuple[Any, Callable[[Any], tuple]]:
    """`f(*args)` and its pullback, which maps a cotangent like the output to one gradient per argument, as a tuple.

    Arguments and output are trees. An argument's leaf that is not of floats is a constant: its gradient is None.
    The pullback can be called again, as long as the arguments, which it may need, stay unchanged; the output is a copy.

    >>> out, pullback = vjp(np.multiply, np.array([1.0, 2.0]), 3.0)
    >>> pullback(np.array([1.0, 10.0]))
    (array([ 3., 30.]), array(21.))
    """
    tape, lifted, out = _run(f, args)
    inputs = [v for v in trees.leaves(lifted) if _is_on(tape, v)]

    def pullback(cotangent: Any) -> tuple:
        pairs = _pairs(tape, out, cotangent)
        gradients = iter(tape.sweep([y for y, _ in pairs], [g for _, g in pairs], inputs, release=False))
        return tuple(trees.map(lambda v: next(gradients) if _is_on(tape, v) else None, a) for a in lifted)

    return trees.map(lambda v: v.raw.copy() if _is_on(tape, v) else v, out), pullback


def _run(f: Callable, args: Any, kwargs: Any = {}, chosen: Any = None, names: Any = None) -> tuple[Tape, list, Any]:  # noqa: B006
    """A new tape, args with the leaves of the chosen ones (all of floats) as its variables, and f's output on them."""
    tape, lifted, strict = Tape(), [*args], chosen is not None
    paths = names(len(args)) if names else argument_names(f, len(args))
    for n in chosen if strict else range(len(args)):
        if not -len(args) <= n < len(args):
            raise TypeError(f"argument {n} is to be differentiated, but there are {len(args)} positional ones, from 0")
        named = trees.items(args[n], paths[n])
        watched = [
            tape.variable(x, path) if strict or type(x) is Variable or np.asarray(x).dtype.kind == "f" else x
            for path, x in named
        ]
        lifted[n] = trees.filled(args[n], iter(watched))
    return tape, lifted, f(*lifted, **kwargs)


def _value_and_aux(f: Callable, out: Any, has_aux: bool) -> tuple[Any, Any]:
    """Take f's result apart, or say what it should have been."""
    name = getattr(f, "__name__", "the function")
    if has_aux and not (isinstance(out, tuple) and len(out) == 2):
        raise TypeError(f"with has_aux=True, {name} must return (value, aux), not {type(out).__name__}")
    out, aux = out if has_aux else (out, None)
    number = not trees.is_node(out) and (type(out) is Variable or np.asarray(out).dtype.kind in "fiu")
    if not number or getattr(out, "shape", ()) != ():
        got = f"an array of shape {np.shape(out)}" if number else f"a {type(out).__name__}"
        raise ValueError(f"grad needs a scalar, but {name} returned {got}: use np.sum, or ng.vjp or ng.jacobian")
    return out, aux


def _values(tape: Tape, tree: Any) -> Any:
    return trees.map(lambda v: v.raw if _is_on(tape, v) else v, tree)


def _is_on(tape: Tape | None, v: Any) -> bool:
    return getattr(v, "tape", None) is tape


def _pairs(tape: Tape | None, tree: Any, other: Any) -> list[tuple[Any, Any]]:
    """The leaves that are on the tape, each with that of the other tree, which must be built alike."""
    pairs = list(zip(trees.leaves(tree), trees.leaves_like(tree, other)))
    for y, g in pairs:
        if np.shape(g) != np.shape(y):
            raise ValueError(f"a cotangent or tangent has shape {np.shape(g)} where the value has shape {np.shape(y)}")
    return [pair for pair in pairs if _is_on(tape, pair[0])]
