"""Variable's operators, and ndarray's methods and attributes: the same functions under their other names.

What changes an array in place (sort, fill, put…) or hands out its memory (view, tobytes…) is an error that says what
to do instead.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import explain
from ..variable import REGISTRY, Variable, strip
from .indexing import getitem
from .shaping import astype

OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "pow": np.power, "matmul": np.matmul,
    "mod": np.remainder,
}  # fmt: skip
PLAIN_OPERATORS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "floordiv": np.floor_divide, "divmod": np.divmod,
}  # fmt: skip
UNARY_OPERATORS = {"neg": np.negative, "pos": np.positive, "abs": np.absolute}
METHODS = (
    "sum", "prod", "mean", "var", "std", "max", "min", "cumsum", "cumprod", "clip", "squeeze", "ravel", "swapaxes",
    "repeat", "take", "trace", "diagonal", "dot", "conj", "conjugate", "round", "all", "any", "argmax", "argmin",
    "argsort", "argpartition", "nonzero", "searchsorted",
)  # fmt: skip
PLAIN_ATTRIBUTES = ("nbytes", "itemsize", "strides", "flags", "device", "imag")
IN_PLACE = {
    "sort": "np.sort(x)", "partition": "np.partition(x, kth)", "fill": "np.full(x.shape, value)",
    "put": "ng.set_at(x, index, value)", "resize": "np.reshape(x, shape)", "setfield": "ng.set_at(x, index, value)",
}  # fmt: skip
LEAVES_TAPE = ("view", "tobytes", "tofile", "dump", "dumps", "getfield", "byteswap")

_PLAIN_OPERANDS = frozenset((np.ndarray, float, int, np.float64, np.float32))


def _operator(symbol, ufunc):
    """The methods behind x * y and y * x: the primitive's call, with short cuts for plain values on a single tape."""
    primitive: Any = REGISTRY[ufunc]
    first, second = primitive.rules

    def method(self, other, modulo=None):  # the third argument of pow
        try:
            x, kind = self.raw, type(other)
            if type(x) is not Variable and modulo is None:
                if kind in _PLAIN_OPERANDS:
                    out = symbol(x, other)
                    return self.tape.record(primitive, out, (self.index,), (first(out, x, other),), (x, other), None)
                if kind is Variable and other.tape is self.tape:
                    y = other.raw
                    if type(y) is not Variable:
                        out = symbol(x, y)
                        pullbacks = (first(out, x, y), second(out, x, y))
                        return self.tape.record(primitive, out, (self.index, other.index), pullbacks, (x, y), None)
            if modulo is not None:
                raise TypeError("pow(x, y, modulo) is for integers: use np.remainder(x**y, modulo)")
            other = _operand(other)
            return other if other is NotImplemented else primitive(self, other)
        except Exception as error:
            explain(error, str(primitive), (self, other), {})
            raise

    def reflected(self, other):
        try:
            x = self.raw
            if type(x) is not Variable and type(other) in _PLAIN_OPERANDS:
                out = symbol(other, x)
                return self.tape.record(primitive, out, (self.index,), (second(out, other, x),), (other, x), None)
            other = _operand(other)
            return other if other is NotImplemented else primitive(other, self)
        except Exception as error:
            explain(error, str(primitive), (other, self), {})
            raise

    return method, reflected


def _operand(other):
    """What can stand beside a Variable: an array, a number, or a sequence as an array; else NotImplemented."""
    if isinstance(other, (Variable, np.ndarray, float, int, np.generic)):
        return other
    return np.asarray(other) if isinstance(other, (list, tuple)) else NotImplemented


def _plain_operator(function, reflected=False):
    def method(self, other):
        return function(other, self) if reflected else function(self, other)

    return method


def _method(function):
    """ndarray's method of the same name and arguments as NumPy's function."""
    implementation = REGISTRY.get(function)

    def method(self, *args, **kwargs):
        if implementation is None or "out" in kwargs or len(args) > 1:  # one of them may be `out`
            return function(self, *args, **kwargs)
        return implementation(self, *args, **kwargs)

    return method


def _reshape(self, *shape, **kwargs):
    return np.reshape(self, shape[0] if len(shape) == 1 else shape, **kwargs)


def _transpose(self, *axes):
    return np.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _plain_attribute(name):
    return lambda self: getattr(strip(self), name)


def _in_place(name, instead):
    def method(self, *args, **kwargs):
        raise TypeError(f"x.{name} would change a Variable in place: use {instead}, which gives a new one")

    return method


for _name, _ufunc in OPERATORS.items():
    _forward = REGISTRY[_ufunc].forward  # type: ignore[attr-defined]
    _direct, _reflected = _operator(getattr(operator, _name) if _forward is _ufunc else _forward, _ufunc)
    setattr(Variable, f"__{_name}__", _direct)
    setattr(Variable, f"__r{_name}__", _reflected)
for _name, _ufunc in PLAIN_OPERATORS.items():
    setattr(Variable, f"__{_name}__", _plain_operator(_ufunc))
for _name in ("floordiv", "divmod"):
    setattr(Variable, f"__r{_name}__", _plain_operator(PLAIN_OPERATORS[_name], reflected=True))
for _name, _ufunc in UNARY_OPERATORS.items():
    setattr(Variable, f"__{_name}__", _method(_ufunc))
for _name in METHODS:
    setattr(Variable, _name, _method(getattr(np, _name)))
for _name in PLAIN_ATTRIBUTES:
    setattr(Variable, _name, property(_plain_attribute(_name)))
for _name, _instead in IN_PLACE.items():
    setattr(Variable, _name, _in_place(_name, _instead))
for _name in LEAVES_TAPE:
    setattr(Variable, _name, Variable._leaves_tape)
_attach: Any = Variable
_attach.reshape = _reshape
_attach.transpose = _transpose
_attach.astype = lambda self, dtype, order="K", casting="unsafe", subok=True, copy=True: astype(self, dtype)
_attach.flatten = lambda self, order="C": np.ravel(self, order)
_attach.copy = lambda self, order="C": +self
_attach.compress = lambda self, condition, axis=None: np.compress(condition, self, axis)
_attach.to_device = lambda self, device, /, *, stream=None: self
_attach.__getitem__ = lambda self, index: getitem(self, index)
_attach.__contains__ = lambda self, item: strip(item) in strip(self)
_attach.T = property(np.transpose)
_attach.mT = property(np.matrix_transpose)
_attach.real = property(lambda self: self)
_attach.flat = property(np.ravel)
