"""What the primitives of this folder share."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_floats(x: Any) -> Any:
    """x as a float array; Variables and float arrays come back as they are, lists and integers become float64."""
    if getattr(getattr(x, "dtype", None), "kind", "") == "f":
        return x
    x = np.asarray(x)
    if x.dtype.kind not in "iubf":
        raise TypeError(f"expected real numbers, not {x.dtype}")
    return x if x.dtype.kind == "f" else x.astype(float)


def as_same_floats(*arrays: Any) -> list[np.ndarray]:
    """Plain arrays as floats of one precision, the highest among them: what in-place work needs."""
    floats = [as_floats(a) for a in arrays]
    if all(a.dtype == floats[0].dtype for a in floats):
        return floats
    return [a.astype(np.result_type(*floats), copy=False) for a in floats]


def as_ids(ids: Any, name: str, count: int, remedy: str) -> np.ndarray:
    """ids as an integer array whose every entry is in range(count); IndexError names the first that is not."""
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        if ids.size or ids.dtype.kind == "b":
            raise TypeError(f"{name} must be integers, not {ids.dtype}")
        ids = ids.astype(np.intp)  # np.array([]) is of floats, but holds none
    if ids.size and not (ids.min() >= 0 and ids.max() < count):
        wrong = ids[(ids < 0) | (ids >= count)].flat[0]
        raise IndexError(f"{name} must be in 0..{count - 1}, but {wrong} is among them: {remedy}")
    return ids
