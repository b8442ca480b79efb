"""Fused primitives: a forward and a pullback tuned together by hand, beside a plain reference.

What makes a decoder fast is few passes over memory: a forward that keeps just what its pullback needs, and a pullback
that works in place. The price is that neither can be recorded; so wherever a derivative is itself differentiated, the
reference takes over, the same function in a few lines of ordinary NumPy. It is also the documentation and the test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import explain, no_rule
from .primitive import Primitive, newest_tape
from .tape import Tape
from .variable import Variable


class Fused(Primitive):
    """A forward tuned by hand that returns its result and its pullback, beside a `reference`; made by `fused`.

    The pullback works on raw arrays, in place where it can. Where a derivative is differentiated again the
    reference runs instead, in recorded operations, so that any order is right.
    """

    def __init__(self, reference: Callable, forward: Callable):
        if not callable(forward) or not callable(reference):
            raise TypeError("a fused primitive needs two functions: decorate its forward with @ng.fused(reference)")
        super().__init__(forward)
        self.__doc__ = forward.__doc__ or reference.__doc__
        self.reference = reference

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args, kwargs = self._bind(args, kwargs)
        tape = newest_tape(args)
        values = [a.raw if type(a) is Variable and a.tape is tape else a for a in args]
        try:
            if Variable in map(type, values):
                return self.reference(*args, **kwargs)
            out, pullback = self.forward(*values, **kwargs)
        except Exception as error:
            explain(error, str(self), args, kwargs)
            raise
        if tape is None:
            return out
        parents = tuple([a.index if type(a) is Variable else None for a in args])

        def gradients(g: Any) -> Any:
            found = self._differentiable_pullback(g, values, kwargs) if type(g) is Variable else pullback(g)
            for i, parent in enumerate(parents):
                if parent is not None and (i >= len(found) or found[i] is None):
                    raise TypeError(no_rule(self, i))
            return found

        return tape.record(self, out, parents, gradients, values, kwargs)

    def _differentiable_pullback(self, g: Variable, values: list, kwargs: dict) -> list:
        tape = Tape()
        lifted = [tape.variable(v) if np.asarray(v).dtype.kind == "f" else None for v in values]
        out = self.reference(*(v if w is None else w for v, w in zip(values, lifted)), **kwargs)
        found = iter(tape.sweep([out], [g], [w for w in lifted if w is not None]))
        return [w if w is None else next(found) for w in lifted]


def fused(reference: Callable) -> Callable[[Callable], Fused]:
    """Decorate `forward(*arrays, **kwargs) -> (out, pullback)` as the fast form of `reference(*arrays, **kwargs)`.

    `pullback(g)` returns a tuple with one gradient per positional argument, None for a constant one; it changes
    neither `g` nor the arguments, and may be called again.

    >>> @fused(lambda x: x / (1 + np.exp(-x)))
    ... def swish(x):
    ...     s = 1 / (1 + np.exp(-x))
    ...     return x * s, lambda g: (g * (s + x * s * (1 - s)),)
    >>> tape = Tape()
    >>> x = tape.variable(0.0)
    >>> tape.gradient(swish(x), [x])
    [array(0.5)]
    """
    return functools.partial(Fused, reference)
