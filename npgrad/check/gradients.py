"""check_grads and check_vjp: first the contract, then the numbers, then, if something is wrong, where.

The contract is in contract.py, the differences in differences.py and directions.py, the verdicts in verdicts.py, the
search for the culprit in locate.py, and what comes out of it all in report.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import argument_names
from ..higher import jvp
from .contract import Breach, breaches
from .differences import Evaluator, refine_coordinate, stacked, wander
from .directions import bisect, check_direction, random_direction
from .locate import locate, prepare
from .precision import look_again
from .progress import Progress
from .records import record_breaches, trace
from .replay import replayed
from .report import Report, Worst, index_in
from .subject import Slots, Subject, float_leaves, name_of, of_function, of_pair, of_pullback, signed_cotangents
from .verdicts import FAIL, INCONCLUSIVE, NAMES, Pulled, judge_leaf, relative


def check_grads(
    f: Callable,
    *args: Any,
    order: int = 1,
    directions: int | None = None,
    extended: bool = True,
    batched: bool = False,
    progress: bool = False,
    seed: int = 0,
) -> Report:
    """Check npgrad's gradient of f at args against differences; raise GradientError unless everything passes.

    f takes arrays, or trees of them, and returns arrays of any shape; float leaves are checked, others are constants.
    An output that is not a single number is contracted with a random cotangent of both signs. The pullback runs in
    the arguments' own precision, the differences in the widest one that f supports. Of each float leaf:

        |analytic - numeric| <= 2 eps**(2/3) * sum of |terms| + what rounding does to the gradient + estimated error

    `order=2` checks the first order, then the pullback as a function of the inputs and the cotangent, and the adjoint
    identity through jvp. `directions=k` compares k random directional derivatives instead of every coordinate, with the
    slope of Taylor's remainder, and finds a failing coordinate by bisection. `extended=False` settles for plain float64
    and one central difference (relative errors below 6e-7 pass); it runs only those of f's operations that a leaf
    reaches, if a probe finds them to be all of f. `batched=True` says that f also takes every float leaf with one more
    leading axis and returns outputs with that axis: many differences in one call, verified by a probe. Ctrl-C gives the
    report so far.

    ValueError for an order other than 1 and 2, or a function that is not batched as it says; TypeError if there is no
    float leaf.

    >>> report = check_grads(np.tanh, np.array([0.5, -1.0]))
    >>> bool(report), report.coordinates
    (True, 2)
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, not {order!r}")
    if directions is not None and directions < 1:
        raise ValueError(f"directions must be at least 1, or None to check every coordinate, not {directions}")
    if order == 2:  # a wrong first derivative can have right derivatives of its own
        check_grads(f, *args, directions=directions, extended=extended, batched=batched, seed=seed)
    subject = of_function(f, args)
    report = Report(name_of(f))
    with _measured(report):
        if order == 2:
            _check_adjoint(f, args, subject, report, seed)
            subject = of_pullback(f, args, signed_cotangents(subject, seed))
        _check(subject, report, directions, extended, batched, progress, seed)
        if order == 2 and report.verdict == "fail" and report.culprit is None:
            report.culprit = locate(trace(of_function(f, args)), seed, order=2)
        _explain(report)
    report.raise_if_failed()
    return report


def check_vjp(
    forward: Callable,
    backward: Callable,
    *args: Any,
    directions: int | None = None,
    progress: bool = False,
    seed: int = 0,
) -> Report:
    """Check a derivative written by hand, of any functions of arrays; raise GradientError unless everything passes.

    `backward(cotangent, *args)` returns one gradient per argument (None for a constant), bare if there is one argument;
    `forward(*args)` has always run just before it on the same arguments. See `check_grads`.

    >>> report = check_vjp(np.sin, lambda g, x: g * np.cos(x), np.array([0.5, 2.0]))
    >>> bool(report)
    True
    """
    report = Report(name_of(forward))
    with _measured(report):
        _check(of_pair(forward, backward, args), report, directions, True, False, progress, seed)
        _explain(report)
    report.raise_if_failed()
    return report


def _check(
    subject: Subject, report: Report, directions: int | None, extended: bool, batched: bool, progress: bool, seed: int
) -> None:
    """Fill the report with breaches of the contract, then coordinates or directions, then the culprit."""
    if not subject.leaves:
        raise TypeError(f"{report.name} has no float array among its arguments: there is no gradient to check")
    entries = trace(subject)
    for _, broken in record_breaches(entries, seed):
        report.breaches += broken
    if not any(b.kind == "shape" for b in report.breaches):
        evaluator, pulled = prepare(subject, seed, extended)
        report.breaches += breaches(evaluator, pulled, seed)
        if batched:
            _probe(evaluator)
        elif not extended and directions is None:
            evaluator.replay = replayed(evaluator)
        if not any(b.kind in ("count", "shape") for b in report.breaches):
            if directions is None:
                _all_coordinates(evaluator, pulled, report, batched, progress)
            else:
                _some_directions(evaluator, pulled, report, directions, seed)
    if report.verdict == "pass":
        report.breaches += _elsewhere(evaluator, pulled, seed)
    elif report.leaves:
        report.breaches = look_again(evaluator, pulled, report.leaves, report.breaches, seed)
    if report.verdict == "fail":
        report.culprit = locate(entries, seed)
        report.traced = subject.call is not None


def _elsewhere(evaluator: Evaluator, pulled: Pulled, seed: int) -> list[Breach]:
    """A breach if what is right at the inputs is wrong beside them, because something kept the first inputs."""
    rng = np.random.default_rng([seed, 5])
    leaves = evaluator.subject.leaves
    moved = [np.asarray(x * (1 + 2.0**-7 * rng.uniform(size=x.shape)), x.dtype) for x in leaves]
    subject = evaluator.subject._replace(leaves=moved)
    try:
        pulled = Pulled(subject, pulled.cotangents, pulled.epsilon, seed)
        evaluator = Evaluator(subject, pulled.cotangents, like=evaluator)
    except (ValueError, ArithmeticError):  # a function may have its reasons to refuse other inputs
        return []
    if not all(np.isfinite(y).all() for y in (*pulled.gradients, evaluator.start)):
        return []
    if check_direction(evaluator, pulled, wander(evaluator.leaves, rng), remainder=False).verdict != FAIL:
        return []
    message = "right here, wrong a little beside: the pullback keeps what it was first called with"
    return [Breach("stale", subject.name, message)]


def _all_coordinates(evaluator: Evaluator, pulled: Pulled, report: Report, batched: bool, progress: bool) -> None:
    total = sum(x.size for x in evaluator.leaves)
    with Progress(total, report.name, enabled=progress) as advance:
        for leaf in range(len(evaluator.leaves)):
            stages = judge_leaf(evaluator, leaf, pulled, batched, advance)
            report.leaves.append(next(stages))
            for _ in stages:
                pass


def _some_directions(evaluator: Evaluator, pulled: Pulled, report: Report, count: int, seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    for _ in range(count):
        direction = random_direction(evaluator, rng)
        report.directions.append(check_direction(evaluator, pulled, direction))
        if report.directions[-1].verdict == FAIL and report.found is None:
            place = bisect(evaluator, pulled, direction)
            if place is not None:
                report.found = _worst_at(evaluator, pulled, *place)


def _worst_at(evaluator: Evaluator, pulled: Pulled, leaf: int, place: int) -> Worst:
    analytic = float(pulled.gradients[leaf].reshape(-1)[place])
    refined = refine_coordinate(evaluator, leaf, place, relative(pulled.epsilon, evaluator), analytic)
    numeric = float(refined.value)
    index = index_in(evaluator.leaves[leaf].shape, place)
    return Worst(evaluator.subject.paths[leaf], index, analytic, numeric, abs(analytic - numeric), NAMES[FAIL])


def _probe(evaluator: Evaluator) -> None:
    """ValueError unless three stacked copies of the inputs give what each of them gives by itself."""
    rng = np.random.default_rng(0)
    starts = [x.copy() for x in evaluator.leaves]
    arrays = [x * (1 + 2.0**-10 * rng.normal(size=(3, *x.shape)).astype(evaluator.dtype)) for x in starts]
    expected = []
    for copy in range(3):
        for x, several in zip(evaluator.leaves, arrays):
            x[...] = several[copy]
        expected.append(evaluator())
    for x, start in zip(evaluator.leaves, starts):
        x[...] = start
    try:
        agree = np.allclose(stacked(evaluator, arrays), expected, rtol=1e-12, atol=0, equal_nan=True)
    except ValueError:
        agree = False
    if not agree:
        raise ValueError(
            f"{evaluator.subject.name} is not batched: with one more leading axis on every float leaf, it must give "
            "its outputs with that axis; leave out batched=True, or make it so"
        )


def _check_adjoint(f: Callable, args: tuple, subject: Subject, report: Report, seed: int) -> None:
    """<u, J v> = <J^T u, v>, the left side by forward mode."""
    evaluator, pulled = prepare(subject, seed)
    rng = np.random.default_rng([seed, 4])
    direction = [np.asarray(d, x.dtype) for d, x in zip(random_direction(evaluator, rng), subject.leaves)]
    slots = Slots(args, argument_names(f, len(args)))

    def of_floats(*arrays: Any) -> Any:
        return f(*slots.fill(list(arrays)))

    _, tangent = jvp(of_floats, tuple(subject.leaves), tuple(direction))
    forward = [u * t for u, t in zip(pulled.cotangents, float_leaves(tangent))]
    backward = [g * v for g, v in zip(pulled.gradients, direction)]
    left, right = (float(sum(np.sum(p, dtype=float) for p in parts)) for parts in (forward, backward))
    size = float(sum(np.sum(np.abs(p), dtype=float) for p in (*forward, *backward)))
    moved = float(sum(np.sum(m * np.abs(v), dtype=float) for m, v in zip(pulled.moves, direction)))
    lost = 8 * (moved + pulled.epsilon * evaluator.magnitude)  # by rounding
    if abs(left - right) > 4 * pulled.epsilon ** (2 / 3) * size + lost:
        message = f"<u, J v> = {left:.10g} by jvp, but <J^T u, v> = {right:.10g}"
        report.breaches.append(Breach("adjoint", report.name, message))


def _explain(report: Report) -> None:
    """Notes on what to do about a failure that no operation explains, and about what could not be decided."""
    if report.verdict == "fail" and report.culprit is None and report.traced:
        report.notes.append(
            "no record fails alone: look at what the function does between operations (values taken off the tape, "
            "a branch on a type, a constant that depends on the inputs)"
        )
    if report.verdict == "inconclusive" and not report.interrupted:
        undecided = [(c.analytic, c.verdicts == INCONCLUSIVE) for c in report.leaves]
        if any(not np.isfinite(a[where]).all() for a, where in undecided):
            report.notes.append(
                "inconclusive where the gradient is not finite: check at inputs away from such points, and if the "
                "function meets them, keep them out of it with np.where around the argument as well as the result"
            )
        if not report.leaves or any(np.isfinite(a[where]).any() for a, where in undecided):
            report.notes.append(
                "inconclusive where the function's values are too coarse, or its slope changes too fast, for "
                "differences: leave large constant terms out of what is checked, scale it to be near 1, or check at "
                "other inputs"
            )


@contextmanager
def _measured(report: Report) -> Iterator[None]:
    """Time a check, without NumPy's floating-point warnings; Ctrl-C ends it and leaves the report as it is."""
    started = time.perf_counter()
    try:
        with np.errstate(all="ignore"):
            yield
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.perf_counter() - started
