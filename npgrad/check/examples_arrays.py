"""Examples of shaping, indexing, products and linear algebra.

Matrices to be inverted or decomposed are well conditioned, with eigenvalues and singular values that lie apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rules import linalg
from ..rules.indexing import add_at, getitem, read, scatter, set_at
from ..rules.products import contract
from ..rules.shaping import join, on_diagonal, surround
from .examples import example, normal

LINE, ROW, MATRIX, TALL, CUBE, NUMBER = normal(5), normal(1, 4), normal(3, 4), normal(4, 3), normal(2, 3, 4), normal()

_f: Any
_x: Any
_y: Any

# Shaping.

example(np.reshape, CUBE, (4, 6))
example(np.reshape, CUBE, (-1, 4), order="F")
example(np.reshape, NUMBER, (1, 1))
for _order in "CFAK":
    example(np.ravel, CUBE, order=_order)
example(np.squeeze, normal(1, 3, 1))
example(np.squeeze, normal(1, 3, 1), axis=2)
example(np.expand_dims, MATRIX, (0, -1))
example(np.transpose, CUBE)
example(np.transpose, CUBE, (-1, 0, 1))
example(np.swapaxes, CUBE, 0, -1)
example(np.moveaxis, CUBE, (0, 1), (-1, 0))
example(np.matrix_transpose, CUBE)
example(np.linalg.matrix_transpose, CUBE)
for _axis, _start in ((2, 0), (0, 3), (1, 1), (-1, 1), (0, -1)):
    example(np.rollaxis, CUBE, _axis, _start)
for _f in (np.flip, np.fliplr, np.flipud, np.copy, np.atleast_1d, np.atleast_2d, np.atleast_3d):
    example(_f, MATRIX)
for _f in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    example(_f, NUMBER)
    example(_f, LINE, MATRIX)
example(np.flip, CUBE, (0, 2))
example(np.rot90, CUBE, k=3, axes=(1, 2))
example(np.rot90, MATRIX)
example(np.roll, CUBE, 5)
example(np.roll, CUBE, (1, -2), axis=(0, 2))
example(np.broadcast_to, normal(3, 1), (2, 3, 4))
example(np.broadcast_to, NUMBER, (2, 3))
example(np.broadcast_arrays, normal(3, 1), normal(4))
example(np.meshgrid, normal(3), normal(4))
example(np.meshgrid, normal(3), normal(4), normal(2), indexing="ij")
example(np.meshgrid, normal(3), normal(4), sparse=True)
example(np.ix_, normal(3), normal(4))
for _reps in (2, (2, 1, 3), (2, 1, 1, 2), (0, 1)):
    example(np.tile, CUBE, _reps)
example(np.repeat, MATRIX, 2)
example(np.repeat, MATRIX, 3, axis=-1)
example(np.repeat, MATRIX, np.array([2, 0, 1]), axis=0)
example(np.repeat, NUMBER, 3)
example(np.resize, MATRIX, (3, 5))
example(np.full_like, np.arange(6.0).reshape(2, 3), NUMBER)
for _f in (np.concatenate, np.vstack, np.hstack, np.dstack, np.column_stack, np.block, np.stack):
    example(_f, [MATRIX, normal(3, 4, seed=1)])
for _f in (np.concatenate, np.vstack, np.hstack, np.dstack, np.column_stack):
    example(_f, (LINE, normal(5, seed=1)))
example(np.concatenate, [CUBE, normal(2, 1, 4)], axis=1)
example(np.concatenate, [MATRIX, LINE], axis=None)
example(np.stack, [MATRIX, MATRIX, normal(3, 4, seed=1)], axis=-1)
example(np.column_stack, [normal(3), MATRIX])
example(np.block, [[MATRIX, normal(3, 2)], [normal(1, 4), normal(1, 2)]])
example(np.block, [LINE, NUMBER])
example(join, MATRIX, TALL.T, axis=0)
example(np.append, MATRIX, LINE)
example(np.append, MATRIX, ROW, axis=0)
example(np.split, MATRIX, 2, axis=1)
example(np.split, LINE, [1, 3])
example(np.array_split, LINE, 3)
example(np.array_split, CUBE, [1, 2, 9], axis=1)
for _f in (np.hsplit, np.vsplit, np.dsplit):
    example(_f, normal(2, 4, 2), 2)
    example(_f, normal(2, 2, 2), 2)
    example(_f, normal(4, 2, 4), 2)
example(np.hsplit, LINE, [2])
if hasattr(np, "unstack"):
    example(np.unstack, CUBE, axis=1)
example(np.delete, MATRIX, 1, axis=1)
example(np.delete, MATRIX, [0, 5, -1])
example(np.insert, MATRIX, 1, normal(3), axis=1)
example(np.insert, MATRIX, [0, 2], normal(3, 2), axis=1)
example(np.insert, LINE, np.array([1, 1, 4]), normal(3))
example(np.insert, LINE, slice(0, 3), NUMBER)
for _f in (np.tril, np.triu):
    example(_f, MATRIX, -1)
    example(_f, CUBE, k=1)
    example(_f, LINE)
example(np.diagonal, CUBE, offset=-1, axis1=2, axis2=0)
example(np.linalg.diagonal, CUBE, offset=1)
example(on_diagonal, LINE, 1, 0, 1, (5, 7))
example(on_diagonal, normal(1), 0, 0, 1, (1, 3))
example(on_diagonal, normal(2, 3), -1, 2, 0, (3, 2, 4))
example(np.diag, LINE, -2)
example(np.diag, MATRIX, 1)
example(np.diagflat, normal(2, 2), k=1)
example(np.trace, MATRIX, offset=1)
example(np.trace, CUBE, axis1=1, axis2=2)
example(np.linalg.trace, CUBE, offset=-1)
example(np.apply_along_axis, lambda row: row[:2] * row[1], 1, CUBE)
example(np.apply_over_axes, np.sum, CUBE, axes=(0, 2))

_PAIRS = ((1, 0), (2, 3), (0, 0))
for _mode in (
    "constant",
    "edge",
    "reflect",
    "symmetric",
    "wrap",
    "maximum",
    "minimum",
    "mean",
    "median",
    "linear_ramp",
):
    example(np.pad, CUBE, _PAIRS, mode=_mode)
example(np.pad, LINE, (9, 7), mode="reflect")
example(np.pad, LINE, (7, 9), mode="symmetric", reflect_type="odd")
example(np.pad, MATRIX, ((1, 2), (3, 0)), mode="reflect", reflect_type="odd")
example(np.pad, MATRIX, 2, constant_values=((1.0, 2.0), (3.0, 4.0)))
example(np.pad, MATRIX, 2, mode="linear_ramp", end_values=((1.0, 2.0), (3.0, 4.0)))
example(np.pad, MATRIX, 1, mode="mean", stat_length=2)
example(surround, LINE, ((1, 2),), {"constant_values": 2.0})

# Indexing.

_INTEGERS, _MORE, _MASK = np.array([0, 2, -1, 2]), np.array([1, 1, 3, 1]), MATRIX > 0.2
for _index in (
    1, (-1, 2), slice(None, None, -2), (slice(1, None), slice(None, None, -1)), (..., 0), None, (slice(None),
    None, 1),
    _INTEGERS, _INTEGERS.astype(np.int8), _INTEGERS.tolist(), _INTEGERS.reshape(2, 2), (_INTEGERS, _MORE),
    (slice(None), _MORE),
    (_INTEGERS, slice(1, 3)), (_INTEGERS[:, None], _MORE), (_INTEGERS, None), (0, _MORE), _MASK, _MASK.any(axis=1),
    (slice(None), _MASK[0]), (_MASK[:, 0], 1), np.zeros(3, bool), np.zeros(0, int), (), True,
):  # fmt: skip
    example(getitem, MATRIX, index=_index)
for _index in (
    (_INTEGERS % 2, slice(None), _MORE), (0, slice(None), _MORE), (slice(None), _MORE % 3), (CUBE > 0)[..., 0],
    (_INTEGERS % 2, ..., 0), (slice(None), np.array([True, False, True]), np.array([[1], [3]])),
):  # fmt: skip
    example(getitem, CUBE, index=_index)
example(read, MATRIX, index=_INTEGERS)
example(read, CUBE, index=(..., 1))
example(read, normal(3), index=_INTEGERS)
example(scatter, normal(4, 4), index=_INTEGERS, shape=(3, 4))
example(scatter, normal(4), index=(_INTEGERS, _MORE), shape=(3, 4))
for _f in (set_at, add_at):
    example(_f, MATRIX, (slice(None), 1), normal(3))
    example(_f, MATRIX, (), NUMBER)
    example(_f, MATRIX, _MASK, NUMBER)
    example(_f, MATRIX, _INTEGERS, normal(4, 4))
    example(_f, MATRIX, _INTEGERS.tolist(), normal(4, 1))
    example(_f, MATRIX, (_INTEGERS, _MORE), normal(1, 4))
for _mode, _where in (("raise", _INTEGERS), ("wrap", _INTEGERS * 3), ("clip", _INTEGERS * 3)):
    example(np.take, MATRIX, _where, mode=_mode)
    example(np.take, MATRIX, _where, axis=0, mode=_mode)
    example(np.take, CUBE, _where.reshape(2, 2), axis=-2, mode=_mode)
example(np.compress, np.array([True, False, True]), MATRIX, axis=0)
example(np.compress, np.array([True, False, True]), CUBE, axis=1)
example(np.extract, _MASK, MATRIX)

# Products.

for _x, _y in (
    ((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((3, 4), (4, 2)), ((4,), (2, 4, 2)), ((2, 3, 4), (4,)),
    ((3, 4), (2, 4, 2)),
    ((2, 3, 4), (4, 2)), ((2, 3, 4), (2, 4, 2)), ((1, 3, 4), (3, 4, 2)), ((2, 1, 3, 4), (1, 3, 4, 2)),
    ((2, 1, 3, 4), (4, 2)),
    ((0, 4), (4, 2)), ((2, 0, 4), (4, 2)), ((3, 0), (0, 2)),
):  # fmt: skip
    example(np.matmul, normal(*_x), normal(*_y))
    if len(_y) < 3:
        example(np.dot, normal(*_x), normal(*_y))
example(np.linalg.matmul, CUBE, normal(4, 2))
example(np.dot, NUMBER, MATRIX)
example(np.dot, MATRIX, NUMBER)
example(np.dot, CUBE, normal(3, 4, 2))
example(np.vdot, MATRIX, normal(3, 4, seed=1))
example(np.inner, CUBE, normal(2, 4))
example(np.inner, NUMBER, MATRIX)
example(np.outer, MATRIX, LINE)
example(np.linalg.outer, LINE, normal(3))
for _y, _axes in (
    ((2,), 0), ((4, 2), 1), ((3, 4, 2), 2), ((3, 4), ((0, 1), (0, 1))), ((4, 3), (1, 0)), ((2, 3), ([-2], [1])),
):  # fmt: skip
    example(np.tensordot, MATRIX, normal(*_y, seed=1), axes=_axes)
example(np.linalg.tensordot, CUBE, normal(4, 2), axes=1)
example(np.kron, normal(2, 3), normal(4, 2))
example(np.kron, normal(3), normal(2, 2))
example(np.cross, normal(4, 3), normal(3))
example(np.cross, normal(3, 4), normal(3, 4, seed=1), axis=0)
example(np.cross, normal(3), normal(3, seed=1))
example(np.linalg.cross, normal(3, 4), normal(3, 4, seed=1), axis=0)
example(np.linalg.cross, normal(3), normal(3, seed=1))
example(np.linalg.cross, normal(2, 1, 3), normal(4, 3))
example(np.vecdot, CUBE, MATRIX)
example(np.vecdot, CUBE, normal(2, 3, 1), axis=1)
example(np.linalg.vecdot, MATRIX, normal(3, 4, seed=1), axis=0)
if hasattr(np, "matvec"):
    example(np.matvec, CUBE, normal(2, 4))
    example(np.vecmat, normal(2, 3), CUBE)
example(np.linalg.multi_dot, [MATRIX, normal(4, 2), normal(2, 3)])
example(np.linalg.multi_dot, [normal(4), normal(4, 2), normal(2, 3), normal(3)])

for _subscripts, *_shapes in (
    ("ij,jk->ik", (3, 4), (4, 2)), ("ij,jk", (3, 4), (4, 2)), ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("ii->i", (3, 3)),
    ("ii", (3, 3)), ("iij,jk->ik", (3, 3, 4), (4, 2)), ("ijj->i", (3, 4, 4)), ("iii->i", (2, 2, 2)),
    ("ij,kj->ik", (3, 4), (2, 4)),
    ("i,j->ji", (3,), (4,)), ("ij,ij->i", (3, 4), (3, 4)), ("ij,k->j", (3, 4), (2,)), ("bij,bjk->bik", (2, 3, 4),
    (2, 4, 2)),
    ("bhqd,bhsd->bhqs", (2, 2, 3, 3), (2, 2, 4, 3)), ("ij,jk,kl->il", (3, 4), (4, 2), (2, 3)), ("i,ij,j->", (3,),
    (3, 4), (4,)),
    ("i,i,i->i", (3,), (3,), (3,)), ("...ij,...jk->...ik", (2, 3, 3, 4), (3, 4, 2)), ("...i,...i", (2, 3, 4), (3, 4)),
    ("i...->...i", (3, 2, 4)), ("ij,ij->ij", (1, 4), (3, 4)), ("ij,jk->ik", (3, 1), (4, 2)), ("ij,ij->j", (1, 4),
    (1, 4)),
    ("i,->i", (3,), ()), ("i j , j k -> i k", (3, 4), (4, 2)), ("ab,bc,cd,da->", (2, 3), (3, 4), (4, 2), (2, 2)),
):  # fmt: skip
    example(np.einsum, _subscripts, *(normal(*s, seed=i) for i, s in enumerate(_shapes)))
example(np.einsum, "ij,jk,kl->il", MATRIX, normal(4, 2), normal(2, 3), optimize=True)
example(np.einsum, MATRIX, [0, 1], normal(4, 2), [1, 2], [0, 2])
example(np.einsum, CUBE, [..., 0], normal(4), [0])
example(contract, "ij,jk->ki", MATRIX, normal(4, 2))
example(contract, "ij->j", MATRIX)

# Linear algebra.

SQUARE = np.eye(3) * 2 + normal(3, 3) / 2
STACK = np.eye(3) * 2 + normal(2, 3, 3) / 2
POSITIVE = SQUARE @ SQUARE.T + np.eye(3)
APART = normal(3, 3) + np.diag([0.0, 3.0, 7.0])
SINGULAR = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]])
for _f in (np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.pinv, np.linalg.cond):
    example(_f, SQUARE)
    example(_f, STACK)
example(np.linalg.inv, np.array([[2.0]]))
example(np.linalg.det, SINGULAR)
example(np.linalg.det, np.zeros((2, 2)))
example(linalg.cofactors, SQUARE)
example(linalg.cofactors, SINGULAR)
example(linalg.log_abs_det, -SQUARE)
for _b in ((3,), (3, 2), (2, 3, 2)):
    example(np.linalg.solve, SQUARE, normal(*_b))
    example(np.linalg.solve, STACK, normal(*_b))
example(linalg.solution, SQUARE, normal(3, 2))
example(np.linalg.tensorsolve, np.eye(6).reshape(6, 2, 3) + normal(6, 2, 3) / 9, normal(6))
example(np.linalg.tensorsolve, np.array([[2.0]]), normal(1))
example(np.linalg.tensorsolve, SQUARE, normal(3))
example(np.linalg.tensorinv, SQUARE, ind=1)
example(np.linalg.tensorinv, np.array([[2.0]]), ind=1)
example(np.linalg.tensorinv, np.eye(6).reshape(6, 2, 3) + normal(6, 2, 3) / 9, ind=1)
for _x in (normal(4, 3) + 2 * np.eye(4, 3), normal(2, 3, 4) + 2 * np.eye(3, 4)):
    example(np.linalg.pinv, _x)
    example(np.linalg.svdvals, _x)
    example(np.linalg.norm, _x, "nuc", axis=(-2, -1))
example(np.linalg.pinv, POSITIVE, hermitian=True)
for _n in (1, 2, 5, -1, -3):
    example(np.linalg.matrix_power, STACK, _n)
for _p in (None, 1, -1, np.inf, -np.inf, 2, -2, "fro"):
    example(np.linalg.cond, SQUARE, p=_p)
example(np.linalg.cholesky, POSITIVE)
example(np.linalg.cholesky, STACK @ np.matrix_transpose(STACK) + np.eye(3), upper=True)
for _uplo in "LU":
    example(np.linalg.eigh, APART, UPLO=_uplo)
    example(np.linalg.eigvalsh, APART, UPLO=_uplo)
example(np.linalg.eigvalsh, APART + normal(2, 3, 3) / 9)
_GRADED = np.diag([1.0, 3.0, 6.0]) + normal(3, 3) / 9
example(np.linalg.svd, _GRADED)
example(np.linalg.svd, np.stack([_GRADED, _GRADED.T])[:, :, :2], full_matrices=False)
example(np.linalg.svd, _GRADED[:2], full_matrices=False)
example(np.linalg.svd, _GRADED, compute_uv=False)
example(np.linalg.svd, APART, compute_uv=False, hermitian=True)
for _x in (SQUARE, STACK, normal(4, 3), normal(3, 5)):
    example(np.linalg.qr, _x)
    example(np.linalg.qr, _x, mode="r")
example(np.linalg.qr, normal(3, 5), mode="complete")
example(np.linalg.norm, CUBE)
example(linalg.length, CUBE, axis=(0, 2), keepdims=False)
for _p in (None, 1, 2, np.inf, -np.inf, 3, 2.5, -1):
    example(np.linalg.norm, LINE, _p)
    example(np.linalg.norm, CUBE, ord=_p, axis=1, keepdims=True)
    example(np.linalg.vector_norm, CUBE, ord=2 if _p is None else _p, axis=(0, 2))
example(linalg.power_norm, LINE, 3, axis=(0,), keepdims=False)
for _p in (None, 1, -1, np.inf, -np.inf, 2, -2, "fro", "nuc"):
    example(np.linalg.norm, MATRIX, _p)
    example(np.linalg.norm, CUBE, ord=_p, axis=(2, 0), keepdims=True)
    example(np.linalg.matrix_norm, CUBE, ord="fro" if _p is None else _p)
