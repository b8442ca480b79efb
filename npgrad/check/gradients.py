"""check_grads and check_vjp: first the contract, then every coordinate, then, if something is wrong, where."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .contract import breaches
from .differences import Evaluator
from .report import Report
from .subject import Subject, name_of, of_function, of_pair, of_pullback
from .verdicts import judge_leaf, sensitivity, working_epsilon


def check_grads(f: Callable, *args: Any, order: int = 1, extended: bool = True, seed: int = 0) -> Report:
    """Check npgrad's gradient of f at args: every coordinate of every float leaf, against differences.

    >>> report = check_grads(np.tanh, np.array([0.5, -1.0]))
    >>> bool(report), report.coordinates
    (True, 2)
    """
    subject = of_function(f, args)
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, not {order!r}")
    if order == 2:
        subject = of_pullback(f, args, signed_cotangents(subject, seed))
    report = Report(name_of(f))
    run(subject, report, extended=extended, seed=seed)
    report.raise_if_failed()
    return report


def check_vjp(forward: Callable, backward: Callable, *args: Any, extended: bool = True, seed: int = 0) -> Report:
    """Check a backward derived by hand: `backward(cotangent, *args)` returns one gradient per argument.

    >>> report = check_vjp(np.sin, lambda g, x: g * np.cos(x), np.array([0.5, 2.0]))
    >>> bool(report)
    True
    """
    report = Report(name_of(forward))
    run(of_pair(forward, backward, args), report, extended=extended, seed=seed)
    report.raise_if_failed()
    return report


def run(subject: Subject, report: Report, *, extended: bool = True, seed: int = 0) -> None:
    """Fill the report with the contract's breaches and all coordinates."""
    started = time.perf_counter()
    with np.errstate(all="ignore"), _interruptible(report):
        cotangents = signed_cotangents(subject, seed)
        evaluator = Evaluator(subject, cotangents, extended)
        outputs, pullback = subject.vjp(subject.leaves)
        epsilon = working_epsilon(subject, outputs, evaluator)
        report.breaches += breaches(evaluator, cotangents, epsilon, seed)
        if not any(b.kind in ("count", "shape") for b in report.breaches):
            gradients = [np.array(g) for g in pullback([c.copy() for c in cotangents])]
            moves = sensitivity(subject, gradients, cotangents, epsilon, seed)
            _coordinates(evaluator, report, gradients, moves, epsilon)
    report.seconds = time.perf_counter() - started


def _coordinates(evaluator: Evaluator, report: Report, gradients: list, moves: list, epsilon: float) -> None:
    for leaf, (gradient, move) in enumerate(zip(gradients, moves)):
        stages = judge_leaf(evaluator, leaf, gradient, move, epsilon)
        report.leaves.append(next(stages))
        for _ in stages:
            pass


def signed_cotangents(subject: Subject, seed: int) -> list[np.ndarray]:
    """Random cotangents of both signs for the subject's outputs, of sizes between 1/2 and 3/2; 1 for a single number."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        outputs = subject.bind(subject.leaves)()
    if sum(y.size for y in outputs) == 1:
        return [np.ones_like(y) for y in outputs]
    return [
        (rng.choice([-1, 1], y.shape) * rng.integers(32, 97, y.shape) / 64).astype(y.dtype) for y in outputs
    ]  # fmt: skip


@contextmanager
def _interruptible(report: Report) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        report.interrupted = True
