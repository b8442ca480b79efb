"""What the engine refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np


class ReleasedTapeError(ValueError):
    """The tape has been consumed by an earlier gradient."""

    code = "released-tape"

    def __str__(self) -> str:
        return "this tape was released by an earlier gradient: record again on a new one, or use retain=True there"


def as_real(array: Any, what: str) -> np.ndarray:
    """An array of floats from what a caller gave; TypeError for masked arrays, matrices, and anything but floats."""
    if is_foreign(array):
        raise TypeError(f"{what} is a {type(array).__name__}, which has operations of its own: give a plain array")
    array = np.asarray(array)
    if array.dtype.kind != "f":
        hint = "; convert it with .astype(float)" if array.dtype.kind in "iub" else ""
        raise TypeError(f"{what} must be a float array, not {array.dtype}{hint}")
    return array


def check_result(primitive: Any, out: Any) -> None:
    """TypeError unless a primitive's result can be differentiated: floats, and no masked array or matrix."""
    if is_foreign(out):
        raise TypeError(
            f"{primitive} gave a {type(out).__name__}: use plain arrays, as np.asarray or .filled() make them"
        )
    if out.dtype.kind != "f":
        raise TypeError(f"{primitive} gave {out.dtype}; only real floating-point results can be differentiated")


def is_foreign(array: Any) -> bool:
    """Whether it is a masked array, a matrix, or of another kind of array that is not used as ndarray is."""
    return isinstance(array, np.ndarray) and type(array) not in (np.ndarray, np.memmap)


def no_rule(function: Any, argument: int | str) -> str:
    return f"{function} has no derivative with respect to argument {argument}: pass ng.stop_gradient(x) for a constant"
