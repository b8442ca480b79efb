"""Products of vectors and matrices: matmul for every combination of ranks, and einsum."""

from __future__ import annotations

import math

import numpy as np

from ..primitive import differentiate, primitive
from ..variable import implements


def _matmul_left(out, x, y):
    if y.ndim == 1:
        if x.ndim == 1:
            return lambda g: g * y
        return lambda g: g[..., None] * y
    if x.ndim == 1:
        return lambda g: np.matmul(y, g[..., None])[..., 0]
    return lambda g: np.matmul(g, np.matrix_transpose(y))


def _matmul_right(out, x, y):
    if x.ndim == 1:
        if y.ndim == 1:
            return lambda g: g * x
        return lambda g: x[:, None] * g[..., None, :]
    if y.ndim == 1:
        return lambda g: np.matmul(np.matrix_transpose(x), g[..., None])[..., 0]
    if y.ndim == 2:  # one product over all leading axes, instead of a batch of products to be summed
        return lambda g: np.matmul(np.matrix_transpose(_rows(x)), _rows(g))
    return lambda g: np.matmul(np.matrix_transpose(x), g)


def _rows(x):
    return np.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


differentiate(np.matmul, _matmul_left, _matmul_right)


@primitive
def contract(subscripts, *operands):
    """np.einsum of explicit subscripts, each letter at most once in each operand."""
    return np.einsum(subscripts, *operands)


@contract.defvjp_each
def _(i, out, subscripts, *operands):
    inputs, output = subscripts.split("->")
    inputs = inputs.split(",")
    k = i - 1
    rest = [output, *inputs[:k], *inputs[k + 1 :]]
    others = [*operands[:k], *operands[k + 1 :]]
    shape = operands[k].shape
    reachable = "".join(c for c in inputs[k] if any(c in r for r in rest))
    lost = tuple(j for j, c in enumerate(inputs[k]) if c not in reachable)  # summed within the operand itself
    spec = ",".join(rest) + "->" + reachable
    kept = tuple(1 if j in lost else n for j, n in enumerate(shape))

    def pullback(g):
        found = contract(spec, g, *others)
        return np.broadcast_to(np.reshape(found, kept), shape) if lost else found

    return pullback
