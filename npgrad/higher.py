"""Derivatives in directions, of vector-valued functions and of gradients, and checkpointing: sweeps of sweeps.

A Jacobian has one row per output coordinate and one column per input coordinate. A sweep with a one-hot cotangent
gives a row. A sweep of the sweep, recorded on a second tape, is linear in its cotangent, and its own pullback gives a
column (forward mode). `jacobian` takes whichever there are fewer of.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import tree as trees
from .fused import fused
from .tape import Tape
from .transforms import _is_on, _pairs, _run, _values, grad, vjp
from .variable import Variable


def jvp(f: Callable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`f(*primals)` and its derivative in the direction `tangents`, both tuples with one tree per argument.

    The pullback u ↦ Jᵀu is linear, so its own pullback takes a tangent ẋ to Jẋ. A leaf that is not of floats is a
    constant: TypeError unless its tangent is 0.

    >>> jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), array(2.))
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primals and tangents must be tuples with one tree per argument: jvp(f, (x,), (dx,))")
    for x, t in _pairs(None, tuple(primals), tuple(tangents)):  # before f runs
        if np.asarray(x).dtype.kind != "f" and np.any(t):
            raise TypeError(
                f"{x!r:.60} is not of floats, and so a constant: its tangent must be 0, or it a float array"
            )
    tape, lifted, out = _run(f, primals)
    pairs = _pairs(tape, lifted, list(tangents))
    outputs, dual = [y for y in trees.leaves(out) if _is_on(tape, y)], Tape()
    u = [dual.variable(np.ones(y.shape, y.dtype)) for y in outputs]
    gradients = tape.sweep(outputs, u, [v for v, _ in pairs])
    linear = [(g, t) for g, (_, t) in zip(gradients, pairs) if _is_on(dual, g)]
    found = iter(dual.sweep([g for g, _ in linear], [t for _, t in linear], u))
    return _values(tape, out), trees.map(lambda y: next(found) if _is_on(tape, y) else np.zeros_like(y), out)


def jacobian(f: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """A function that returns the Jacobian of f with respect to argument `argnums`.

    f returns an array or a tree of them. Each leaf of its result becomes a tree like the argument (a tuple of trees for
    a tuple of argnums), whose leaves have shape (*output.shape, *input.shape) and the output's dtype. Keyword arguments
    are constants. TypeError for a leaf of the argument that is not of floats.

    >>> jacobian(lambda x: x**2)(np.array([1.0, 3.0]))
    array([[2., 0.],
           [0., 6.]])
    """
    several = isinstance(argnums, (tuple, list))
    chosen = tuple(argnums) if several else (operator.index(argnums),)  # type: ignore[arg-type]

    @functools.wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        tape, lifted, out = _run(f, args, kwargs, chosen)
        watched = tuple(lifted[n] for n in chosen)
        watched = watched if several else watched[0]
        inputs = trees.leaves(watched)
        outputs = [y for y in trees.leaves(out) if _is_on(tape, y)]
        by_columns = sum(v.size for v in inputs) < sum(y.size for y in outputs)
        rows = iter((_columns if by_columns else _rows)(tape, outputs, inputs))

        def leaf(y: Any) -> Any:
            blocks = iter(next(rows) if _is_on(tape, y) else [_zeros(y, v) for v in inputs])
            return trees.map(lambda _: next(blocks), watched)

        return trees.map(leaf, out)

    return differentiated


def hessian(f: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """A function that returns the Hessian of the scalar f with respect to argument `argnums`.

    A tree like the argument whose leaves are trees like it again: H[i][j] has shape (*x_i.shape, *x_j.shape).

    >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    return jacobian(grad(f, argnums), argnums)


def hvp(f: Callable, args: Sequence[Any], vectors: Sequence[Any]) -> tuple:
    """The Hessian of the scalar f at `args` times `vectors`: a tuple of trees like the arguments.

    `vectors` has a tree for each argument, or None for one that is a constant (its result is None). The Hessian itself
    is never formed: H is symmetric, so Hv is the pullback of v through the gradient (Pearlmutter, "Fast exact
    multiplication by the Hessian", 1994).

    >>> hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    (array([  6., 120.]),)
    """
    if not isinstance(args, (tuple, list)) or not isinstance(vectors, (tuple, list)) or len(args) != len(vectors):
        raise TypeError("args and vectors must be tuples with one tree per argument: hvp(f, (x, y), (vx, vy))")
    chosen = tuple(i for i, v in enumerate(vectors) if v is not None)

    def gradient(*variables: Any) -> tuple:
        filled = [*args]
        for i, v in zip(chosen, variables):
            filled[i] = v
        return grad(f, chosen)(*filled)

    _, pullback = vjp(gradient, *(args[i] for i in chosen))
    found = iter(pullback(tuple(vectors[i] for i in chosen)))
    return tuple(None if v is None else next(found) for v in vectors)


def _zeros(y: Any, v: Any) -> np.ndarray:
    """The Jacobian of a constant: in its dtype if that is of floats, else in the input's."""
    dtype = getattr(y, "dtype", v.dtype)
    return np.zeros(np.shape(y) + v.shape, dtype if dtype.kind == "f" else v.dtype)


def _units(arrays: list) -> Iterator[tuple[int, list]]:
    """For each coordinate of the arrays: the number of its array, and arrays of zeros but for a one there."""
    for i, a in enumerate(arrays):
        for k in range(a.size):
            unit = [np.zeros(b.shape, b.dtype) for b in arrays]
            unit[i].flat[k] = 1
            yield i, unit


def _rows(tape: Tape, outputs: list, inputs: list) -> list[list]:
    """The blocks of the Jacobian, by output and input, from one sweep per output coordinate."""
    found: list[list] = [[] for _ in outputs]
    for i, unit in _units(outputs):
        found[i].append(tape.sweep(outputs[i : i + 1], unit[i : i + 1], inputs, release=False))
    return [
        [_stacked([row[j] for row in found[i]], y, v, y.shape + v.shape) for j, v in enumerate(inputs)]
        for i, y in enumerate(outputs)
    ]


def _columns(tape: Tape, outputs: list, inputs: list) -> list[list]:
    """The same from one sweep per input coordinate, over the tape of one sweep."""
    dual = Tape()
    u = [dual.variable(np.ones(y.shape, y.dtype)) for y in outputs]
    gradients = tape.sweep(outputs, u, inputs)
    found: list[list] = [[] for _ in inputs]
    for j, unit in _units(inputs):
        pairs = [(g, t) for g, t in zip(gradients[j : j + 1], unit[j : j + 1]) if _is_on(dual, g)]
        found[j].append(dual.sweep([g for g, _ in pairs], [t for _, t in pairs], u, release=False))
    blocks = []
    for i, y in enumerate(outputs):
        shapes = [(*v.shape, *y.shape) for v in inputs]
        stacked = [_stacked([c[i] for c in found[j]], y, v, shapes[j]) for j, v in enumerate(inputs)]
        blocks.append([np.moveaxis(b, range(v.ndim), range(-v.ndim, 0)) for b, v in zip(stacked, inputs)])
    return blocks


def _stacked(parts: list, y: Any, v: Any, shape: tuple) -> Any:
    """Rows or columns as one array in the output's dtype."""
    if not parts or not math.prod(shape):
        return np.zeros(shape, y.dtype)
    block = np.reshape(np.stack(parts), shape)
    return block if block.dtype == y.dtype else block.astype(y.dtype)


# Checkpointing.


def checkpointed(run: Any, *leaves: Any) -> Any:
    """run(*leaves), as its record is called."""
    return run(*leaves)


@fused(checkpointed)
def _checkpointed(run: Any, *leaves: Any) -> Any:
    """run(*leaves) without a record of what happens inside; the pullback runs it again, on a tape of its own."""

    def pullback(g: Any) -> tuple:
        tape = Tape()
        lifted = [tape.variable(x) for x in leaves]
        out = run(*lifted)
        gradients = tape.sweep([out], [g], lifted) if _is_on(tape, out) else [np.zeros_like(x) for x in leaves]
        return (None, *gradients)

    return run(*leaves), pullback


def checkpoint(f: Callable) -> Callable:
    """f, with nothing kept for the backward but its arguments: it runs again when the sweep reaches it.

    Arguments, by position or keyword, and results are trees. What f reads must come in as an argument: TypeError if it
    uses a Variable from outside. f must give the same result when it runs again. Where derivatives are nested, the
    outer tapes record f in full (Griewank & Walther 2008, chapter 12).

    >>> block = checkpoint(lambda x: np.tanh(x) * x)
    >>> grad(lambda x: np.sum(block(block(x))))(np.array([0.0, 1.0]))
    array([0.        , 1.28754668])
    """

    @functools.wraps(f)
    def run_again(*args: Any, **kwargs: Any) -> Any:
        given = [_snapshot(leaf) for leaf in trees.leaves([args, kwargs])]
        places = [i for i, leaf in enumerate(given) if type(leaf) is Variable]
        if not places:
            return f(*args, **kwargs)
        results: list = []

        def run(*leaves: Any) -> Any:
            """The float results in one flat array: a record has one output."""
            filled = [*given]
            for i, leaf in zip(places, leaves):
                filled[i] = leaf
            positional, named = trees.unflatten([args, kwargs], filled)
            out = f(*positional, **named)
            found = trees.leaves(out)
            if not results:
                results.append(trees.map(_template, out))
            _refuse_outsiders(f, leaves, found)
            floats = [np.ravel(y) for y in found if _is_float(y)]
            if not floats:
                raise TypeError(f"{getattr(f, '__name__', 'the function')} under checkpoint returned no float array")
            return floats[0] if len(floats) == 1 else np.concatenate(floats)

        packed = _checkpointed(run, *(given[i] for i in places))
        return _unpacked(packed, results[0])

    return run_again


def _snapshot(leaf: Any) -> Any:
    """A copy of an array of ids or of a mask: a batch may be filled again before the sweep, when f runs again."""
    return leaf.copy() if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iub" else leaf


def _is_float(y: Any) -> bool:
    return (y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype).kind == "f"


def _template(y: Any) -> Any:
    """The shape and dtype of a float leaf, in an array without memory of its own; another leaf as it is."""
    return np.broadcast_to(np.zeros((), getattr(y, "dtype", float)), np.shape(y)) if _is_float(y) else y


def _unpacked(packed: Any, out: Any) -> Any:
    """The flat array as a tree like this one."""
    start = 0

    def leaf(y: Any) -> Any:
        nonlocal start
        if not _is_float(y):
            return y
        part = packed[start : start + y.size]
        start += y.size
        part = np.reshape(part, y.shape)
        return part if part.dtype == y.dtype else part.astype(y.dtype)

    return trees.map(leaf, out)


def _refuse_outsiders(f: Callable, leaves: Sequence[Any], found: Sequence[Any]) -> None:
    tapes = {id(x.tape) for x in leaves if type(x) is Variable}
    if any(type(y) is Variable and id(y.tape) not in tapes for y in found):
        raise TypeError(
            f"{getattr(f, '__name__', 'the function')} under checkpoint uses a Variable from outside: pass it as an "
            "argument, so that it gets its gradient"
        )
