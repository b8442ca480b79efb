"""Examples: the sample inputs that each function is checked on, declared once and used by the audit and the tests.

`example(np.exp, normal(3, 4))` is one line; every float array among the arguments is differentiated.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Example(NamedTuple):
    """One call of a function: `function(*args, **kwargs)`, with float64 arrays that are checked in float32 too."""

    function: Callable
    args: tuple
    kwargs: dict[str, Any]


EXAMPLES: dict[Any, list[Example]] = {}
"""From functions (NumPy's, primitives, any callable) to their examples, in the order of declaration."""


def example(function: Callable, *args: Any, **kwargs: Any) -> None:
    """Declare a call on which `function` is to be checked.

    >>> example(np.exp, normal(3, 4))
    """
    EXAMPLES.setdefault(function, []).append(Example(function, args, kwargs))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal numbers of this shape, the same at each call."""
    return np.random.default_rng([seed, zlib.crc32(repr(shape).encode())]).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.5 and 2 of this shape, the same at each call."""
    return np.random.default_rng([seed, zlib.crc32(repr(shape).encode())]).uniform(0.5, 2.0, size=shape)
