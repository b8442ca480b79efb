"""Variable's operators and ndarray's methods: the same functions under their other names."""

from __future__ import annotations

import numpy as np

from ..variable import REGISTRY, Variable
from .indexing import getitem
from .shaping import astype

OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "pow": np.power, "matmul": np.matmul,
}  # fmt: skip
PLAIN_OPERATORS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
UNARY_OPERATORS = {"neg": np.negative, "pos": np.positive, "abs": np.abs}
METHODS = ("sum", "mean", "max", "min", "squeeze", "ravel", "swapaxes", "argmax", "argmin", "argsort")


def _operator(ufunc, reflected=False):
    """The method behind x * y (reflected: y * x): the primitive's own call, with a short cut for one plain operand."""
    primitive = REGISTRY[ufunc]
    first, second = primitive.rules

    def method(self, other):
        x = self.value
        if type(x) is Variable or not isinstance(other, (np.ndarray, float, int, np.generic)):
            if isinstance(other, (list, tuple)):
                other = np.asarray(other)
            elif type(x) is not Variable and type(other) is not Variable:
                return NotImplemented
            return primitive(other, self) if reflected else primitive(self, other)
        if reflected:
            out = ufunc(other, x)
            pullback = second(out, other, x)
        else:
            out = ufunc(x, other)
            pullback = first(out, x, other)
        return self.tape.record(primitive, out, (self.index,), (pullback,), (x, other), None)

    return method


def _function(function):
    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return method


def _shape_method(function):
    """reshape and transpose take their integers one by one or as a tuple."""

    def method(self, *args, **kwargs):
        if len(args) == 1 and (args[0] is None or isinstance(args[0], (tuple, list))):
            args = args[0]
        return function(self, args or None, **kwargs)

    return method


for name, ufunc in OPERATORS.items():
    setattr(Variable, f"__{name}__", _operator(ufunc))
    setattr(Variable, f"__r{name}__", _operator(ufunc, reflected=True))
for name, function in (PLAIN_OPERATORS | UNARY_OPERATORS).items():
    setattr(Variable, f"__{name}__", _function(function))
for name in METHODS:
    setattr(Variable, name, _function(getattr(np, name)))
Variable.reshape = _shape_method(np.reshape)
Variable.transpose = _shape_method(np.transpose)
Variable.astype = lambda self, dtype, copy=True: astype(self, dtype)
Variable.__getitem__ = lambda self, index: getitem(self, index)
Variable.T = property(np.transpose)
Variable.mT = property(np.matrix_transpose)
