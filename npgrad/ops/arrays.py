"""What the primitives of this folder share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

HALF = np.dtype(np.float16)


def as_floats(x: Any) -> Any:
    """x as a float array; Variables and float arrays come back as they are, lists and integers become float64."""
    if getattr(getattr(x, "dtype", None), "kind", "") == "f":
        return x
    if x is None:
        raise TypeError("expected an array of real numbers, not None")
    x = np.asarray(x)
    if x.dtype.kind not in "iubf":
        raise TypeError(f"expected real numbers, not {x.dtype}")
    return x if x.dtype.kind == "f" else x.astype(float)


def as_same_floats(*arrays: Any) -> Sequence[np.ndarray]:
    """Plain arrays as floats of one precision, the highest among them: what in-place work needs."""
    first = getattr(arrays[0], "dtype", None)
    if first is not None and first.kind == "f":
        for a in arrays:
            if getattr(a, "dtype", None) is not first:
                break
        else:
            return arrays
    floats = [as_floats(a) for a in arrays]
    return [a.astype(np.result_type(*floats), copy=False) for a in floats]


@functools.lru_cache(16)
def ones(count: int, dtype: np.dtype) -> np.ndarray:
    """A vector to sum rows or columns with, in a matrix product: read-only, and mostly there already."""
    found = np.ones(count, dtype)
    found.flags.writeable = False
    return found


def half_in_single(function: Callable) -> Callable:
    """Let a function of float16 arrays compute in float32, whose sums neither overflow nor stall, and give float16.

    For plain functions, references, and fused forwards that return their result and a pullback.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not args or getattr(args[0], "dtype", None) != HALF:
            return function(*args, **kwargs)
        floats = [a.dtype for a in args if getattr(getattr(a, "dtype", None), "kind", "") == "f"]
        wide = np.result_type(np.float32, *floats)
        found = function(*(a.astype(wide) if getattr(a, "dtype", None) == HALF else a for a in args), **kwargs)
        if np.result_type(*floats) != HALF:  # it computed in what is wider among the arguments
            return found
        if not isinstance(found, tuple):
            return found.astype(np.float16)
        out, pullback = found
        return out.astype(np.float16), lambda g: pullback(g.astype(np.float32))

    return run


def as_ids(ids: Any, name: str, count: int, remedy: str, below: str = "") -> np.ndarray:
    """ids as an integer array whose every entry is in range(count); IndexError names the first that is not.

    `remedy` says what to do about it; `below`, if given, about one that is negative.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        if ids.size or ids.dtype.kind == "b":
            raise TypeError(f"{name} must be integers, not {ids.dtype}")
        ids = ids.astype(np.intp)  # np.array([]) is of floats, but holds none
    if ids.size and ids.astype(np.int64, copy=False).view(np.uint64).max() >= count:  # as unsigned, −1 is the largest
        wrong = ids[(ids < 0) | (ids >= count)].flat[0]
        hint = below if below and wrong < 0 else remedy
        raise IndexError(f"{name} must be in 0..{count - 1}, but {wrong} is among them: {hint}")
    return ids
