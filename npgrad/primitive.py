"""Primitives: functions of arrays that know how to differentiate themselves.

A `Primitive` is a forward on raw arrays and one *rule* per differentiable argument. A rule is called as
`rule(out, *args, **kwargs)` when the primitive is recorded and returns the pullback, a function of the cotangent
`g`. What a pullback mentions, its closure keeps alive until the sweep has passed; nothing else is kept. Rules are
written in the same NumPy as any other code, so they can be differentiated again.

Calling a primitive on plain arrays runs its forward. On Variables it goes to the newest tape among them: the
arguments are replaced by their values on that tape, which may be Variables of older tapes, so that the same call
and the rule's own arithmetic are recorded there in turn. That is all there is to higher order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import explain, no_rule
from .tape import Tape
from .variable import REGISTRY, Variable

PRIMITIVES: list[Primitive] = []  # in the order of registration, NumPy's and users' alike: what the audit goes through


class Primitive:
    """A forward on raw arrays with a rule for each differentiable argument; made by `primitive`.

    >>> @primitive
    ... def cube(x):
    ...     return x**3
    >>> @cube.defvjp
    ... def _(out, x):
    ...     return lambda g: g * 3 * x**2
    >>> x = Tape().variable(2.0)
    >>> x.tape.gradient(cube(x), [x])
    [array(12.)]
    """

    def __init__(self, forward: Callable):
        functools.update_wrapper(self, forward)
        self.forward = forward
        self.rules: tuple[Callable | None, ...] = ()
        self.each: Callable | None = None  # the rule of every further argument
        PRIMITIVES.append(self)

    def defvjp(self, *rules: Callable | None) -> Any:
        """Give the rule of argument 0, of argument 1, …; None or a missing rule: a constant. Returns the first.

        `rule(out, *args, **kwargs)` gets the result and the arguments and returns `pullback(g)`, whose result has
        that argument's shape (or one that broadcasting made of it). TypeError if a rule can't be called that way.
        """
        required = [p for p in self._parameters if p.kind < p.VAR_POSITIONAL and p.default is p.empty]
        keywords = {p.name: None for p in self._parameters if p.kind == p.KEYWORD_ONLY}
        for rule in filter(None, rules):
            try:
                inspect.signature(rule).bind(None, *required, **keywords)
            except TypeError as error:
                wanted = f"a rule of {self} must accept (out, *args, **kwargs), as {self} does"
                raise TypeError(f"{wanted}: {error}") from None
        self.rules = rules
        return rules[0] if rules else None

    def defvjp_each(self, rule: Callable) -> Callable:
        """Give one rule for any number of arguments: `rule(i, out, *args, **kwargs)` is that of argument i."""
        self.each = rule
        return rule

    @functools.cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        if isinstance(self.forward, np.ufunc):
            return [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(self.forward.nin)]
        try:
            return list(inspect.signature(self.forward).parameters.values())
        except ValueError:  # some of NumPy's functions tell no signature
            return []

    def _bind(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Move arguments given by keyword to their positions, where they can be differentiated."""
        for p in self._parameters[len(args) :]:
            skipped = p.name not in kwargs and (p.default is p.empty or Variable not in map(type, kwargs.values()))
            if p.kind != p.POSITIONAL_OR_KEYWORD or skipped:
                break
            args += (kwargs.pop(p.name, p.default),)
        for name, value in kwargs.items():
            if type(value) is Variable:
                raise TypeError(no_rule(self, name))
        return args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args, kwargs = self._bind(args, kwargs)
        tape = newest_tape(args)
        values, parents, rules, run = [*args], [], [], self.forward
        for i, a in enumerate(args):
            if type(a) is Variable:
                if a.tape is tape:
                    rule = self.rules[i] if i < len(self.rules) else self.each and functools.partial(self.each, i)
                    if rule is None:
                        raise TypeError(no_rule(self, i))
                    rules.append(rule)
                    parents.append(a.index)
                    values[i] = a = a.raw
                if type(a) is Variable:
                    run = self
        if kwargs:
            run = functools.partial(run, **kwargs)
            rules = [functools.partial(rule, **kwargs) for rule in rules]
        try:
            out = run(*values)
        except Exception as error:
            explain(error, str(self), args, kwargs)
            raise
        if tape is None:
            return out
        pullbacks = tuple([rule(out, *values) for rule in rules])
        if not all(map(callable, pullbacks)):
            raise TypeError(f"a rule of {self} must return its pullback, a function of the cotangent")
        return tape.record(self, out, tuple(parents), pullbacks, values, kwargs)

    def __str__(self) -> str:
        return getattr(self, "__name__", "primitive")

    def __repr__(self) -> str:
        return f"{self}{inspect.Signature([p.replace(annotation=p.empty) for p in self._parameters])}"

    def __get__(self, instance: Any, owner: Any = None) -> Primitive:  # help() takes what has one for a function
        return self


def newest_tape(args: tuple) -> Tape | None:
    tape = None
    for a in args:
        if type(a) is Variable and (tape is None or a.tape.number > tape.number):
            tape = a.tape
    return tape


def primitive(forward: Callable) -> Primitive:
    """Make a primitive of a function of arrays; give its derivative with `.defvjp`. See `Primitive`."""
    return Primitive(forward)


def differentiate(function: Callable, *rules: Callable | None) -> Primitive:
    """Register NumPy's `function` as a primitive with these rules (see `Primitive.defvjp`)."""
    REGISTRY[function] = numpy_primitive = Primitive(function)
    numpy_primitive.rules = rules  # their signatures are checked by the tests, not at each import
    return numpy_primitive
