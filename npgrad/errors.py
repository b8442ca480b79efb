"""What the engine refuses, and how it says so."""

from __future__ import annotations

import inspect
import operator
import re
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

ADVICE = {
    "not (be )?broadcast": "from the last axis backwards, sizes must be equal or 1; x[:, None] adds an axis of size 1",
    "shape-mismatch|core dimension": "an axis that is summed over needs one size on both sides: see x.mT, np.reshape",
    "not have enough dimensions": "a number has no axis to be summed over: use * for it",
    "out of bounds for array": "axes count from 0 at the front, or from -1 at the back",
    "out of bounds for axis": "indices count from 0 at the front, or from -1 at the back, and end before the size",
    "indices must be of integer|only integers, slices": "an array of indices can be made of integers by .astype(int)",
    "too many indices": "give at most one index for each axis, or add axes with x[..., None]",
    "boolean index did not match": "a mask has the shape of the array, or of its first axes",
    "cannot reshape": "the sizes of the new shape must multiply to the old number; one may be -1, to be worked out",
    "one unknown dimension": "a single -1 can be worked out from the other sizes",
    "repeated axis|duplicate value in|cannot be the same": "name each axis once",
    "axes don't match": "name each axis once, or use np.moveaxis",
    "select an axis to squeeze": "drop only axes of size 1, or index with x[0]",
    "same number of dimensions": "add axes with x[None] or np.reshape, or see np.stack",
    "must match exactly": "join along the axis in which they differ, or make them alike by slicing or np.pad",
    "must be square": "np.linalg.pinv and np.linalg.svd take matrices that are not",
    "two-dimensional|at least two dimensions": "give a matrix, or a stack of them",
    "not positive definite": "only symmetric matrices with eigenvalues above 0 have a factor: add a multiple of np.eye",
    "[Ss]ingular matrix": "it has no inverse: see np.linalg.pinv, or add a multiple of np.eye",
    "did not converge": "look for NaN and infinity with np.isfinite",
    "no identity": "leave empty arrays out, or give initial=",
    "^mode .* is not supported": "there are constant, edge, linear_ramp, maximum, mean, median, minimum, reflect…",
    "interpreted as an integer": "give an integer: int(x), or x.astype(int)",
    "unexpected keyword": "NumPy's are axis and keepdims; leave others out: .astype takes the place of dtype=",
    "contain a loop|supported for the input types": "give arrays of real numbers",
}
"""By the words of NumPy's errors, what to do about them."""

REWORDED = (ValueError, TypeError, IndexError, np.linalg.LinAlgError)


class ReleasedTapeError(ValueError):
    """The tape has been consumed by an earlier gradient."""

    code = "released-tape"

    def __str__(self) -> str:
        return "this tape was released by an earlier gradient: record again on a new one, or use retain=True there"


def explain(error: Exception, name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Have NumPy's error say which call it is about, what that was given, and what to do; leave others as they are.

    Whoever is called by the user has the last word, and names the function that the user knows.
    """
    if type(error) not in REWORDED and not type(error).__module__.startswith("numpy"):
        return
    own = type(error) in REWORDED[:3] and [*map(type, error.args)] != [str]  # NumPy's have one string
    if own or name.startswith("_"):  # a primitive that the user has never heard of
        return
    found = str(error).strip()
    words = vars(error).get("explained", {}).get(found, found)  # before an inner call, if nobody changed them since
    advice = next((advice for known, advice in ADVICE.items() if re.search(known, words)), "")
    if not advice and (not name.startswith("np.") or name in words):
        return
    given = [_described(a) for a in args] + [f"{key}={_described(a)}" for key, a in kwargs.items()]
    text = f"{name}({', '.join(given)}): {words}" + (f": {advice}" if advice else "")
    if type(error) in REWORDED:
        error.__init__(text)  # type: ignore[misc]
    else:  # it makes up its words from other things: AxisError from its axis
        error.__notes__ = [text]
    vars(error)["explained"] = {str(error).strip(): words}


def _described(argument: Any, depth: int = 3) -> str:
    """float64(2, 3) for an array."""
    if type(argument) in (list, tuple) and 0 < len(argument) <= 4 and depth:
        first, last = "[]" if type(argument) is list else "()"
        return f"{first}{', '.join(_described(a, depth - 1) for a in argument)}{last}"
    if isinstance(getattr(argument, "dtype", None), np.dtype):
        return f"{argument.dtype}{argument.shape}"
    return reprlib.repr(argument)


def as_integer(number: Any, what: str) -> int:
    """A Python integer from an integer of any kind; TypeError for anything else, floats too."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {reprlib.repr(number)}") from None


def as_real(array: Any, what: str) -> np.ndarray:
    """An array of floats from what a caller gave; TypeError for masked arrays, matrices, and anything but floats."""
    if is_foreign(array):
        raise TypeError(f"{what} is a {type(array).__name__}, which has operations of its own: give a plain array")
    array = np.asarray(array)
    if array.dtype.kind != "f":
        hint = "split it into .real and .imag" if array.dtype.kind == "c" else "convert it with .astype(float)"
        raise TypeError(f"{what} must be a float array, not {array.dtype}; {hint}")
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


def argument_names(f: Callable, count: int) -> list[str]:
    """The names of f's first `count` positional arguments, `args[i]` where it has none."""
    try:
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    except ValueError:  # it is callable, but tells no signature
        names = []
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(count)]


def no_rule(function: Any, argument: int | str) -> str:
    """What to do about an argument, of this number or name, that can't be differentiated."""
    if not function.rules and not hasattr(function, "reference"):  # a fused one's derivative is in its pullback
        return f"{function} has no rule: give its derivative with @{function}.defvjp, or pass ng.stop_gradient(x)"
    if isinstance(argument, int):
        argument = f"{argument} ({argument_names(function, argument + 1)[argument]})"
    return f"{function} has no derivative with respect to argument {argument}: pass ng.stop_gradient(x) for a constant"
