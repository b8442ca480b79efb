"""What is checked: a function over a list of float arrays, beside the pullback that claims to be its derivative.

`Subject` is the one form that the checks know. It is made from a function that npgrad differentiates
(`of_function`), from a forward and a backward written by hand (`of_pair`), from a function's own pullback, which is
how the second order is checked (`of_pullback`), or from one record of a tape (locate.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import tree as trees
from ..errors import argument_names
from ..transforms import vjp


class Subject(NamedTuple):
    """A function of `leaves`, float arrays, and its claimed pullback.

    `bind(arrays)` gives a function without arguments that evaluates at the arrays' present contents, in any floating
    precision, and returns the float outputs as a list. `vjp(arrays)` gives the outputs and `pullback(cotangents)`,
    which returns one gradient per leaf. `call(variables)` is the function itself, where npgrad can record it.
    """

    name: str
    paths: list[str]
    leaves: list[np.ndarray]
    bind: Callable[[list], Callable[[], list]]
    vjp: Callable[[list], tuple[list, Callable[[list], list]]]
    call: Callable[[list], Any] | None = None
    hand_written: bool = False


class Slots:
    """The float leaves of a tuple of arguments, and the way to put other arrays in their places."""

    def __init__(self, args: tuple, names: list[str]):
        self.args = args
        found = [item for name, a in zip(names, args) for item in trees.items(a, name)]
        self.all = [x for _, x in found]
        self.chosen = [i for i, x in enumerate(self.all) if is_float(x)]
        self.paths = [found[i][0] for i in self.chosen]
        self.leaves = [np.asarray(self.all[i]) for i in self.chosen]

    def fill(self, arrays: list) -> tuple:
        new = [*self.all]
        for i, array in zip(self.chosen, arrays):
            new[i] = array
        return trees.unflatten(self.args, new)


def is_float(x: Any) -> bool:
    """Whether a leaf is of real floats; everything else is a constant."""
    return np.asarray(x).dtype.kind == "f"


def float_leaves(tree: Any) -> list[np.ndarray]:
    """The float leaves of an output, as arrays."""
    return [y for y in map(np.asarray, trees.leaves(tree)) if y.dtype.kind == "f"]


def name_of(f: Any) -> str:
    """What to call a function, also one with some arguments filled in."""
    return getattr(getattr(f, "func", f), "__name__", None) or type(f).__name__


def of_function(f: Callable, args: tuple) -> Subject:
    """f, as npgrad differentiates it, at args."""
    slots = Slots(args, argument_names(f, len(args)))

    def bind(arrays: list) -> Callable[[], list]:
        filled = slots.fill(arrays)
        return lambda: float_leaves(f(*filled))

    def differentiate(arrays: list) -> tuple[list, Callable]:
        out, pullback = vjp(f, *slots.fill(arrays))
        if not float_leaves(out):
            raise TypeError(
                f"{name_of(f)} returned {out!r:.60}, in which there are no floats to check: is a return missing?"
            )
        return float_leaves(out), lambda cotangents: trees.leaves(pullback(_cotangent_tree(out, cotangents)))

    def call(variables: list) -> Any:
        return f(*slots.fill(variables))

    return Subject(name_of(f), slots.paths, slots.leaves, bind, differentiate, call)


def of_pair(forward: Callable, backward: Callable, args: tuple) -> Subject:
    """A forward and `backward(cotangent, *args)` that never touched npgrad, at args."""
    slots = Slots(args, argument_names(forward, len(args)))

    def bind(arrays: list) -> Callable[[], list]:
        filled = slots.fill(arrays)
        return lambda: float_leaves(forward(*filled))

    def differentiate(arrays: list) -> tuple[list, Callable]:
        filled = slots.fill(arrays)
        out = forward(*filled)

        def pullback(cotangents: list) -> list:
            forward(*filled)  # a layer that keeps its inputs between the two calls sees these ones
            return _gradients(backward(_cotangent_tree(out, cotangents), *filled), filled)

        return float_leaves(out), pullback

    return Subject(name_of(forward), slots.paths, slots.leaves, bind, differentiate, hand_written=True)


def of_pullback(f: Callable, args: tuple, cotangents: list) -> Subject:
    """The pullback of f as a function of its inputs and its cotangent: whose derivative is f's second order."""
    slots = Slots(args, argument_names(f, len(args)))
    count = len(slots.leaves)

    def pulled(*arrays: Any) -> list:
        out, pullback = vjp(f, *slots.fill(list(arrays[:count])))
        return trees.leaves(pullback(_cotangent_tree(out, list(arrays[count:]))))

    subject = of_function(pulled, (*slots.leaves, *cotangents))
    names = [f"cotangent[{i}]" if len(cotangents) > 1 else "cotangent" for i in range(len(cotangents))]
    return subject._replace(name=f"pullback of {name_of(f)}", paths=[*slots.paths, *names])


def signed_cotangents(subject: Subject, seed: int) -> list[np.ndarray]:
    """Random cotangents of both signs and sizes from 1/2 to 3/2, one per output; 1 for a single number."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        outputs = subject.bind(subject.leaves)()
    if sum(y.size for y in outputs) == 1:
        return [np.ones_like(y) for y in outputs]
    return [
        (rng.choice([-1, 1], y.shape) * rng.integers(32, 97, y.shape) / 64).astype(y.dtype) for y in outputs
    ]  # fmt: skip


def _cotangent_tree(out: Any, cotangents: list) -> Any:
    """The cotangents in the output's own tree, zeros for outputs that aren't floats."""
    remaining = iter(cotangents)
    return trees.map(lambda y: next(remaining) if np.result_type(y).kind == "f" else np.zeros(np.shape(y)), out)


def _gradients(result: Any, args: tuple) -> list:
    """What a backward returned, as one gradient per float leaf of args."""
    floats = [any(is_float(x) for x in trees.leaves(a)) for a in args]
    given = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(args) == 1 and trees.is_node(args[0]) and not (len(given) == 1 and trees.is_node(given[0])):
        given = [result]
    if len(given) == sum(floats) != len(args):
        remaining = iter(given)
        given = [next(remaining) if wanted else None for wanted in floats]
    if len(given) != len(args):
        raise ValueError(f"backward returned {len(given)} gradients for {len(args)} arguments: return one for each")
    found: list = []
    for a, g in zip(args, given):
        kept = trees.leaves(a)
        gradients = _leaves_in_order(a, g)
        if len(gradients) == len(kept):
            gradients = [y for y, x in zip(gradients, kept) if is_float(x)]
        if len(gradients) != sum(map(is_float, kept)):
            raise ValueError("backward returned a tree of gradients unlike its argument's: return one for each leaf")
        found += gradients
    return found


def _leaves_in_order(a: Any, g: Any) -> list:
    """The leaves of a tree of gradients in its argument's order: dicts are matched by key, which may be left out."""
    if isinstance(a, dict) and isinstance(g, dict):
        if unknown := g.keys() - a.keys():
            raise ValueError(f"backward returned a gradient for {sorted(map(repr, unknown))[0]}, which args don't have")
        return [leaf for key in a if key in g for leaf in _leaves_in_order(a[key], g[key])]
    if isinstance(a, (list, tuple)) and isinstance(g, (list, tuple)) and len(a) == len(g):
        return [leaf for child, gradient in zip(a, g) for leaf in _leaves_in_order(child, gradient)]
    return trees.leaves(g)
