"""What every pullback owes before its numbers matter.

Each cotangent has its argument's shape and dtype; inputs and the incoming cotangent are left bit-identical; the
pullback is linear, takes 0 to 0, says the same twice and also after the function has run elsewhere; its results share
no memory with the cotangent, the inputs or each other. Each breach has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .differences import Evaluator
from .subject import Subject
from .verdicts import Pulled, negligible

KINDS = ("value", "count", "shape", "dtype", "mutation", "zero", "linearity", "determinism", "stale", "aliasing")


class Breach(NamedTuple):
    """One broken promise: its kind (one of KINDS), where, and a sentence."""

    kind: str
    where: str
    message: str


def breaches(evaluator: Evaluator, pulled: Pulled, seed: int = 0) -> list[Breach]:
    """Every promise that a subject's pullback breaks at its inputs; an empty list if none."""
    subject, cotangents = evaluator.subject, pulled.cotangents
    outputs, pullback = subject.vjp(subject.leaves)
    found = _values(subject, outputs) + forms(subject, outputs, pullback, cotangents)
    if any(b.kind in ("count", "shape", "mutation") for b in found):
        return found
    first = [np.array(g) for g in pullback([c.copy() for c in cotangents])]
    return found + _laws(evaluator, pulled, first, pullback, seed)


def forms(subject: Subject, outputs: list, pullback: Callable, cotangents: list[np.ndarray]) -> list[Breach]:
    """What one call of the pullback shows: its results' shapes, dtypes and memory, and what it changed."""
    arrays = {
        "an input": subject.leaves,
        "the output": outputs,
        "the incoming cotangent": [c.copy() for c in cotangents],
    }
    before = {what: [y.tobytes() for y in group] for what, group in arrays.items()}
    found = _results(subject, pullback(arrays["the incoming cotangent"]), arrays["the incoming cotangent"])
    for what, group in arrays.items():
        if [y.tobytes() for y in group] != before[what]:
            found.append(Breach("mutation", subject.name, f"the pullback changes {what}"))
    return found


def _values(subject: Subject, outputs: list) -> list[Breach]:
    """The function gives the same on plain arrays as while it is differentiated, and the same twice."""
    plain, again = subject.bind(subject.leaves)(), subject.bind(subject.leaves)()
    epsilon = max((float(np.finfo(x.dtype.type).eps) for x in (*subject.leaves, *outputs)), default=0.0)
    if not _agree(plain, again, epsilon):
        return [Breach("determinism", subject.name, "two evaluations at the same inputs differ: fix its random seed")]
    if not _agree(plain, outputs, epsilon):
        return [
            Breach("value", subject.name, "on plain arrays it computes something else than while it is differentiated")
        ]
    return []


def _results(subject: Subject, gradients: list, cotangents: list) -> list[Breach]:
    if len(gradients) != len(subject.leaves):
        message = f"{len(gradients)} gradients for {len(subject.leaves)} float arguments"
        return [Breach("count", subject.name, message)]
    found = []
    for i, (path, x, g) in enumerate(zip(subject.paths, subject.leaves, gradients)):
        if np.shape(g) != x.shape:
            found.append(Breach("shape", path, f"the gradient has shape {np.shape(g)}, the argument {x.shape}"))
        if np.asarray(g).dtype != x.dtype:
            found.append(Breach("dtype", path, f"the gradient has dtype {np.asarray(g).dtype}, the argument {x.dtype}"))
        if not isinstance(g, np.ndarray):
            continue
        others = [("the incoming cotangent", c) for c in cotangents] if subject.hand_written else []
        if subject.call is not None or subject.hand_written:
            others += [("an input", y) for y in subject.leaves]
            others += [(f"the gradient of {p}", h) for p, h in zip(subject.paths[:i], gradients[:i])]
        for what, y in others:
            if isinstance(y, np.ndarray) and np.may_share_memory(g, y):
                found.append(Breach("aliasing", path, f"the gradient shares its memory with {what}"))
    return found


def _laws(evaluator: Evaluator, pulled: Pulled, first: list, pullback: Callable, seed: int) -> list[Breach]:
    subject, cotangents, epsilon = evaluator.subject, pulled.cotangents, pulled.epsilon
    found: list[Breach] = []
    slack, infinite = [np.zeros(g.shape) for g in first], [~np.isfinite(g) for g in first]

    def compare(kind: str, got: list, expected: list, sizes: list, message: str) -> bool:
        count = len(found)
        for path, g, e, size, s, undefined in zip(subject.paths, got, expected, sizes, slack, infinite):
            if g.shape != e.shape or not np.all(_close(g, e, size, epsilon, s) | undefined):
                found.append(Breach(kind, path, message))
        return len(found) == count

    def pull(given: list) -> list:
        return [np.array(g) for g in pullback([c.copy() for c in given])]

    size = [np.abs(g) for g in first]
    compare("determinism", pull(cotangents), first, size, "two calls with one cotangent differ")
    if found:
        return found
    zero = pull([np.zeros_like(c) for c in cotangents])
    compare("zero", zero, [np.zeros_like(g) for g in first], size, "the pullback of 0 is not 0")
    rng = np.random.default_rng([seed, 1])
    other = [(rng.integers(-96, 97, c.shape) / 64).astype(c.dtype) for c in cotangents]
    second, mixed = pull(other), pull([2 * c - 3 * d for c, d in zip(cotangents, other)])
    sizes = [2 * np.abs(g) + 3 * np.abs(h) for g, h in zip(first, second)]
    expected = [2 * g - 3 * h for g, h in zip(first, second)]
    message = "the pullback of 2g - 3h is not 2 pullback(g) - 3 pullback(h)"
    slack = floors = [negligible(evaluator, i, epsilon).reshape(g.shape) for i, g in enumerate(first)]
    if not compare("linearity", mixed, expected, sizes, message):
        found = [b for b in found if b.kind != "linearity"]
        terms = 8 * epsilon * max((float(np.max(np.abs(c), initial=0)) for c in cotangents), default=0.0)
        slack = [np.minimum(32 * m, 0.01 * np.max(g, initial=0)) + f for m, g, f in zip(pulled.moves, sizes, floors)]
        slack = [s + terms for s in slack]  # what is left where terms as large as the cotangent cancel
        compare("linearity", mixed, expected, sizes, message)
    if not found and not subject.hand_written:
        elsewhere = [np.asarray(x * (1 + 2.0**-7 * rng.uniform(size=x.shape)), x.dtype) for x in subject.leaves]
        subject.vjp(elsewhere)[1]([c.copy() for c in other])
        message = (
            "it changes when the function has run on other inputs meanwhile: the pullback keeps a buffer that is reused"
        )
        compare("stale", pull(cotangents), first, size, message)
    return found


def _agree(outputs: list, others: list, epsilon: float) -> bool:
    largest = max((float(np.max(np.abs(y[np.isfinite(y)]), initial=0)) for y in outputs), default=0.0)
    return len(outputs) == len(others) and all(
        y.shape == z.shape and bool(np.all(_close(z, y, np.abs(y), epsilon, 256 * epsilon * largest)))
        for y, z in zip(outputs, others)
    )


def _close(
    got: np.ndarray, expected: np.ndarray, size: np.ndarray, epsilon: float, slack: np.ndarray | float = 0
) -> Any:
    """Where they are equal within the working precision; NaN and infinities must be in the same places."""
    largest = np.max(size[np.isfinite(size)], initial=0)
    allowed = 4 * epsilon ** (2 / 3) * size + 256 * epsilon * largest + slack
    return (got == expected) | (np.isnan(got) & np.isnan(expected)) | (np.abs(got - expected) <= allowed)
