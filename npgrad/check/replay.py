"""A function's recorded operations, run again from the first that a moved leaf reaches: the rest is already known.

One coordinate of a decoder's last block changes nothing before that block. Differences of recorded operations would not
see what a function computes off its tape, so they are used only after a probe: at points in random directions, near and
far, the operations must give what the function itself gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import tree as trees
from ..variable import Variable
from .differences import Evaluator
from .directions import random_direction
from .records import WatchfulTape

PROBES = (2.0**-2, -(2.0**-7), 2.0**-16)


class Replay:
    """The operations that an evaluator's function records, to be run at the present contents of its leaves."""

    def __init__(self, evaluator: Evaluator):
        subject, tape = evaluator.subject, WatchfulTape()
        assert subject.call is not None
        out = trees.leaves(subject.call([tape.variable(x) for x in subject.leaves]))
        self.outputs = [y.index for y in out if type(y) is Variable]
        if len(self.outputs) < len(out):
            raise ValueError("some output is no Variable")
        self.entries = tape.entries
        self.values: list[Any] = [*evaluator.leaves, *tape.values[len(evaluator.leaves) :]]
        self._run(self.values, self._steps(range(len(evaluator.leaves))))

    def bind(self, moved: Iterable[int]) -> Callable[[], list[np.ndarray]]:
        """A function that evaluates the outputs when the contents of the leaves `moved` have changed."""
        steps, values = self._steps(moved), [*self.values]

        def evaluate() -> list[np.ndarray]:
            self._run(values, steps)
            return [np.asarray(values[y]) for y in self.outputs]

        return evaluate

    def _steps(self, moved: Iterable[int]) -> list[tuple]:
        """What the leaves reach: number, primitive, arguments, and which of them are which values."""
        reached, steps = set(moved), []
        for e in self.entries:
            if not reached.isdisjoint(e.parents):
                reached.add(e.number)
                steps.append((e.number, e.primitive, [*e.args], e.kwargs, [*zip(e.positions, e.parents)]))
        return steps

    @staticmethod
    def _run(values: list, steps: list[tuple]) -> None:
        for number, primitive, args, kwargs, places in steps:
            for position, parent in places:
                args[position] = values[parent]
            values[number] = primitive(*args, **kwargs)


def replayed(evaluator: Evaluator) -> Replay | None:
    """The replay of an evaluator's function; None unless it agrees with the function wherever it is probed."""
    if evaluator.subject.call is None:
        return None
    starts = [x.copy() for x in evaluator.leaves]
    rng = np.random.default_rng(0)
    try:
        replay = Replay(evaluator)
        again = replay.bind(range(len(starts)))
        for t in PROBES:
            for x, start, d in zip(evaluator.leaves, starts, random_direction(evaluator, rng)):
                x[...] = start + t * d
            expected, found = evaluator(), evaluator.flat(again())
            if not np.allclose(found, expected, rtol=2.0**-44, atol=0, equal_nan=True):
                return None
    except Exception:  # whatever the function can't do off its inputs, or its operations can't, is no reason to fail
        return None
    finally:
        for x, start in zip(evaluator.leaves, starts):
            x[...] = start
    return replay
