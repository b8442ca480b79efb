"""Mistakes: each ends in an error that says what was given and what to do, and leaves everything as it was."""

import copy
import pickle

import numpy as np
import pytest

import npgrad as ng
from npgrad import decoder, optim, training, tree
from npgrad.primitive import PRIMITIVES
from npgrad.variable import REGISTRY

X, M = np.arange(6.0).reshape(2, 3), np.eye(3)
V, S, SQ = ng.Tape().variable(X), ng.Tape().variable(2.0), ng.Tape().variable(M)
W = ng.Tape().variable(X)
Q = np.ones((1, 1, 4, 3))
ROPE = ng.RotaryEmbedding(4, max_positions=8)
SGD = optim.SGD({"w": X}, 0.1, momentum=0.9)
SIZES = {
    "vocab_size": 5, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 8,
}  # fmt: skip
CONFIG = decoder.Config(**SIZES)
PARAMS = decoder.init(CONFIG, seed=0)


def tape():
    return ng.Tape()


def released():
    x = ng.Tape().variable(X)
    x.tape.gradient(np.sum(x), [x])
    return x


def gradient_twice():
    x = ng.Tape().variable(X)
    y = np.sum(x)
    x.tape.gradient(y, [x])
    x.tape.gradient(y, [x])


def set_item(x):
    x[0] = 1.0


def increment(a, x):
    a += x


def registered(rule):
    ng.primitive(lambda x: x).defvjp(rule)


def identity(rule):
    function = ng.primitive(lambda x, y=1.0: x * 1.0)
    function.defvjp(rule)
    return function


def wrong_shape():
    ng.grad(lambda x: np.sum(identity(lambda out, x, y=1.0: lambda g: np.ones(7))(x)))(X)


def no_pullback():
    ng.grad(lambda x: np.sum(identity(lambda out, x, y=1.0: None)(x)))(X)


def constant_argument():
    identity(lambda out, x, y=1.0: lambda g: g)(X, V)


def in_a_list():
    np.exp([V, V])


MISTAKES = [
    # tapes
    (
        lambda: tape().variable(np.arange(3)),
        TypeError,
        "a variable must be a float array, not int64; convert it with .astype(float)",
    ),
    (
        lambda: tape().variable([True]),
        TypeError,
        "a variable must be a float array, not bool; convert it with .astype(float)",
    ),
    (
        lambda: tape().variable(np.ones(2, complex)),
        TypeError,
        "a variable must be a float array, not complex128; split it into .real and .imag",
    ),
    (lambda: tape().variable("text"), TypeError, "a variable must be a float array, not <U4"),
    (lambda: tape().variable(np.array([None])), TypeError, "a variable must be a float array, not object"),
    (
        lambda: tape().variable(np.ma.array([1.0], mask=[True])),
        TypeError,
        "a variable is a MaskedArray, which has operations of its own: give a plain array",
    ),
    (
        lambda: tape().gradient(V, [V]),
        ValueError,
        "an output of shape (2, 3) needs a cotangent of that shape, or np.sum first",
    ),
    (lambda: V.tape.gradient(V, V), TypeError, "inputs must be a list of Variables: tape.gradient(y, [x])"),
    (
        lambda: V.tape.gradient(V, [V]),
        ValueError,
        "an output of shape (2, 3) needs a cotangent of that shape, or np.sum first",
    ),
    (
        lambda: V.tape.gradient(V, [V], np.ones(5)),
        ValueError,
        "the cotangent has shape (5,), but the output has shape (2, 3)",
    ),
    (lambda: V.tape.gradient(V, [V], 1.0), ValueError, "the cotangent has shape (), but the output has shape (2, 3)"),
    (
        lambda: V.tape.gradient(np.sum(V), [X]),
        TypeError,
        "outputs and inputs must be Variables of this tape, not a ndarray",
    ),
    (
        lambda: V.tape.gradient(np.sum(V), ["x"]),
        TypeError,
        "outputs and inputs must be Variables of this tape, not a str",
    ),
    (lambda: V.tape.gradient(3.0, [V]), TypeError, "outputs and inputs must be Variables of this tape, not a float"),
    (
        lambda: V.tape.gradient(np.sum(V), [W]),
        TypeError,
        "outputs and inputs must be Variables of this tape, not a Variable of another",
    ),
    (
        lambda: V.tape.gradient(np.sum(W), [V]),
        TypeError,
        "outputs and inputs must be Variables of this tape, not a Variable of another",
    ),
    (
        lambda: released().tape.gradient(np.sum(V), [V]),
        TypeError,
        "outputs and inputs must be Variables of this tape, not a Variable of another",
    ),
    (
        lambda: np.exp(released()),
        ng.ReleasedTapeError,
        "this tape was released by an earlier gradient: record again on a new one, or use retain=True there",
    ),
    (
        lambda: gradient_twice(),
        ng.ReleasedTapeError,
        "this tape was released by an earlier gradient: record again on a new one, or use retain=True there",
    ),
    # leaving the tape
    (
        lambda: np.asarray(V),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: np.array([V, V]),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: np.array(V, float),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: float(S),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: int(S),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: complex(S),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: S.item(),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: V.tolist(),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: V[0] if X[np.sum(V)] else None,
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: set_item(V),
        TypeError,
        "a Variable can't be changed in place: use np.where, np.concatenate or ng.set_at(x, index, value)",
    ),
    (
        lambda: copy.copy(V),
        TypeError,
        "a Variable belongs to its tape and can't be copied or pickled; copy or pickle x.value",
    ),
    (
        lambda: copy.deepcopy(V),
        TypeError,
        "a Variable belongs to its tape and can't be copied or pickled; copy or pickle x.value",
    ),
    (
        lambda: pickle.dumps(V),
        TypeError,
        "a Variable belongs to its tape and can't be copied or pickled; copy or pickle x.value",
    ),
    (lambda: list(S), TypeError, "a 0-d Variable can't be iterated over; it is a single number"),
    (
        lambda: range(S),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: np.exp(V, out=X.copy()),
        TypeError,
        "np.exp with out= would write behind the tape's back (x += y does too): use its result",
    ),
    (
        lambda: np.add(X, V, out=X.copy()),
        TypeError,
        "np.add with out= would write behind the tape's back (x += y does too): use its result",
    ),
    (
        lambda: np.exp(V, where=X > 0),
        TypeError,
        "np.exp with where= can't be differentiated: use np.where in place of where=, and .astype in place",
    ),
    (
        lambda: np.exp(V, dtype=np.float32),
        TypeError,
        "np.exp with dtype= can't be differentiated: use np.where in place of where=, and .astype in place",
    ),
    (
        lambda: np.add.at(V, 0, 1.0),
        TypeError,
        "np.add.at can't be differentiated: it changes an array in place: use ng.add_at(x, index, value)",
    ),
    (
        lambda: np.multiply.reduceat(V, [0, 1]),
        TypeError,
        "npgrad has no rule for np.multiply.reduceat: write it in terms of functions that have one, register",
    ),
    (
        lambda: increment(X, V),
        TypeError,
        "np.add with out= would write behind the tape's back (x += y does too): use its result",
    ),
    (
        lambda: np.concatenate([X, V], out=np.ones((4, 3))),
        TypeError,
        "np.concatenate with out= would write behind the tape's back (x += y does too): use its result",
    ),
    (
        lambda: np.copyto(X.copy(), V),
        TypeError,
        "np.copyto can't be differentiated: it changes an array in place",
    ),
    (
        lambda: np.put(V, 0, 1.0),
        TypeError,
        "np.put can't be differentiated: it changes an array in place: use ng.set_at(np.ravel(x), index,",
    ),
    (
        lambda: np.unique(V),
        TypeError,
        "np.unique can't be differentiated: its result jumps when elements meet or cross bounds: use",
    ),
    (
        lambda: np.histogram(V),
        TypeError,
        "np.histogram can't be differentiated: its result jumps when elements meet or cross bounds: use",
    ),
    (
        lambda: np.save("nowhere", V),
        TypeError,
        "np.save can't be differentiated: files and text hold constants: give it x.value",
    ),
    (
        lambda: np.fft.fft(V),
        TypeError,
        "npgrad has no rule for np.fft.fft: write it in terms of functions that have one, register a rule",
    ),
    (
        lambda: V.fill(0.0),
        TypeError,
        "x.fill would change a Variable in place: use np.full(x.shape, value), which gives a new one",
    ),
    (lambda: V.sort(), TypeError, "x.sort would change a Variable in place: use np.sort(x), which gives a new one"),
    (
        lambda: V.astype(complex),
        TypeError,
        "cast gave complex128; only real floating-point results can be differentiated",
    ),
    (
        lambda: V.view(np.int64),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (lambda: V[V], TypeError, "an index can't be a Variable: it has no derivative; index with i.value"),
    (
        lambda: V[np.array([0.5])],
        IndexError,
        "getitem(float64(2, 3), float64(1,)): … can be made of integers by .astype(int)",
    ),
    (
        lambda: V[0, 0, 0],
        IndexError,
        "getitem(float64(2, 3), (0, 0, 0)): too many indices … give at most one index for each axis",
    ),
    (
        lambda: V[5],
        IndexError,
        "getitem(float64(2, 3), 5): … indices count from 0 at the front",
    ),
    (
        lambda: V["name"],
        IndexError,
        "getitem(float64(2, 3), 'name'): only integers, slices … can be made of integers by .astype(int)",
    ),
    (
        lambda: V[[True, False, True]],
        IndexError,
        "getitem(float64(2, 3), [True, False, True]): … a mask has the shape of the array, or of its",
    ),
    (
        lambda: V[[0, 1], [0, 1, 2]],
        IndexError,
        "getitem(float64(2, 3), ([0, 1], [0, 1, 2])): … from the last axis backwards, sizes must be equal or 1",
    ),
    # shapes
    (
        lambda: V + np.ones(4),
        ValueError,
        "add(float64(2, 3), float64(4,)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: np.ones(4) - V,
        ValueError,
        "subtract(float64(4,), float64(2, 3)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: [1.0, 2.0] * V,
        ValueError,
        "multiply(float64(2,), float64(2, 3)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: np.ones(4) < V,
        ValueError,
        "np.less(float64(4,), float64(2, 3)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: np.hypot(V, np.ones(4)),
        ValueError,
        "np.hypot(float64(2, 3), float64(4,)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: ng.grad(ng.grad(lambda x: np.sum(x + np.ones(4))))(X),
        ValueError,
        "add(float64(2, 3), float64(4,)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (lambda: V + np.array(["a"]), TypeError, "add(float64(2, 3), <U1(1,)): … give arrays of real numbers"),
    (lambda: V + "text", TypeError, "unsupported operand type(s) for +: 'Variable' and 'str'"),
    (lambda: pow(S, 2, 5), TypeError, "pow(x, y, modulo) is for integers: use np.remainder(x**y, modulo)"),
    (lambda: f"{V:.3f}", TypeError, "a Variable can't be formatted by '.3f': format its value, f'{x.value:.3f}'"),
    (
        lambda: V @ np.ones(2),
        ValueError,
        "matmul(float64(2, 3), float64(2,)): … an axis that is summed over needs one size on both sides",
    ),
    (
        lambda: V @ V,
        ValueError,
        "matmul(float64(2, 3), float64(2, 3)): … an axis that is summed over needs one size on both sides",
    ),
    (
        lambda: S @ V,
        ValueError,
        "matmul(float64(), float64(2, 3)): … a number has no axis to be summed over: use * for it",
    ),
    (
        lambda: np.dot(V, V),
        ValueError,
        "np.dot(float64(2, 3), float64(2, 3)): … an axis that is summed over needs one size on both sides",
    ),
    (
        lambda: np.matmul(V, np.ones((4, 4))),
        ValueError,
        "np.matmul(float64(2, 3), float64(4, 4)): … an axis that is summed over needs one size on both sides",
    ),
    (lambda: np.einsum("ij,jk", V, V), ValueError, "np.einsum: axis 'j' has sizes [2, 3] in shapes [(2, 3), (2, 3)]"),
    (lambda: np.einsum("ijk", V), ValueError, "np.einsum: 'ijk' doesn't fit an operand of 2 dimensions"),
    (
        lambda: np.tensordot(V, V, 3),
        ValueError,
        "np.tensordot over 3 axes of shapes (2, 3) and (2, 3): there are fewer",
    ),
    (
        lambda: np.tensordot(V, V, 1),
        ValueError,
        "np.tensordot over axes (range(1, 2), range(0, 1)) of shapes (2, 3) and (2, 3): their sizes differ",
    ),
    (
        lambda: np.sum(V, axis=2),
        np.exceptions.AxisError,
        "np.sum(float64(2, 3), axis=2): axis 2 is out of bounds … axes count from 0 at the front",
    ),
    (
        lambda: V.sum(axis=2),
        np.exceptions.AxisError,
        "sum(float64(2, 3), 2): axis 2 is out of bounds … axes count from 0 at the front",
    ),
    (lambda: np.mean(V, axis=(0, 0)), ValueError, "np.mean(float64(2, 3), axis=(0, 0)): … name each axis once"),
    (
        lambda: np.max(V, axis=-3),
        np.exceptions.AxisError,
        "np.max(float64(2, 3), axis=-3): axis -3 is out of bounds … axes count from 0 at the front",
    ),
    (lambda: np.max(V[:0]), ValueError, "np.max(float64(0, 3)): … leave empty arrays out, or give initial="),
    (
        lambda: np.argmax(V, axis=2),
        np.exceptions.AxisError,
        "np.argmax(float64(2, 3), axis=2): … axes count from 0 at the front",
    ),
    (lambda: np.quantile(V, 2.0), ValueError, "np.quantile(float64(2, 3), 2.0): … range [0, 1]"),
    (
        lambda: np.clip(V, 0, 1, dtype=np.float32),
        TypeError,
        "np.clip(float64(2, 3), 0, 1, dtype= … leave others out: .astype takes the place of dtype=",
    ),
    (
        lambda: np.reshape(V, (4, 4)),
        ValueError,
        "np.reshape(float64(2, 3), (4, 4)): … the sizes of the new shape must multiply to the old number",
    ),
    (
        lambda: V.reshape(7),
        ValueError,
        "np.reshape(float64(2, 3), 7): … the sizes of the new shape must multiply to the old number",
    ),
    (
        lambda: np.reshape(V, (-1, -1)),
        ValueError,
        "np.reshape(float64(2, 3), (-1, -1)): … a single -1 can be worked out from the other sizes",
    ),
    (
        lambda: np.reshape(V, (2.0, 3)),
        TypeError,
        "np.reshape(float64(2, 3), (2.0, 3)): … give an integer: int(x), or x.astype(int)",
    ),
    (lambda: np.transpose(V, (0, 0)), ValueError, "np.transpose(float64(2, 3), (0, 0)): … name each axis once"),
    (
        lambda: np.transpose(V, (0, 1, 2)),
        ValueError,
        "np.transpose(float64(2, 3), (0, 1, 2)): … name each axis once, or use np.moveaxis",
    ),
    (
        lambda: np.moveaxis(V, 0, 5),
        np.exceptions.AxisError,
        "np.moveaxis(float64(2, 3), 0, 5): … axes count from 0 at the front",
    ),
    (
        lambda: np.swapaxes(V, 0, 2),
        np.exceptions.AxisError,
        "np.swapaxes(float64(2, 3), 0, 2): … axes count from 0 at the front",
    ),
    (
        lambda: np.squeeze(V, axis=0),
        ValueError,
        "np.squeeze(float64(2, 3), axis=0): … drop only axes of size 1, or index with x[0]",
    ),
    (
        lambda: np.expand_dims(V, 5),
        np.exceptions.AxisError,
        "np.expand_dims(float64(2, 3), 5): … axes count from 0 at the front",
    ),
    (
        lambda: np.concatenate([V, np.ones((2, 4, 1))]),
        ValueError,
        "np.concatenate([float64(2, 3), float64(2, 4, 1)]): … add axes with x[None] or np.reshape",
    ),
    (
        lambda: np.concatenate([V, np.ones((3, 4))]),
        ValueError,
        "np.concatenate([float64(2, 3), float64(3, 4)]): … join along the axis in which they differ",
    ),
    (
        lambda: np.concatenate(V, axis=3),
        np.exceptions.AxisError,
        "np.concatenate(float64(2, 3), axis=3): … axes count from 0 at the front",
    ),
    (lambda: np.stack([V, np.ones(2)]), ValueError, "np.stack needs arrays of one shape, but got [(2,), (2, 3)]"),
    (lambda: np.split(V, 5), ValueError, "np.split(float64(2, 3), 5): an axis of 2 can't be split into 5 equal parts"),
    (
        lambda: np.broadcast_to(V, (5, 5)),
        ValueError,
        "np.broadcast_to(float64(2, 3), (5, 5)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: np.where(np.ones(5) > 0, V, 0.0),
        ValueError,
        "np.where(bool(5,), float64(2, 3), 0.0): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: np.take(V, [7], axis=0),
        IndexError,
        "np.take(float64(2, 3), [7], axis=0): … indices count from 0 at the front",
    ),
    (
        lambda: np.take_along_axis(V, np.array([[0.5]]), axis=1),
        IndexError,
        "np.take_along_axis(float64(2, 3), float64(1, 1), axis=1): … can be made of integers by .astype(int)",
    ),
    (
        lambda: np.diagonal(V, axis1=0, axis2=0),
        ValueError,
        "np.diagonal(float64(2, 3), axis1=0, axis2=0): … name each axis once",
    ),
    (lambda: np.trace(S), ValueError, "np.trace(float64()): … give a matrix, or a stack of them"),
    (
        lambda: np.linalg.inv(V),
        np.linalg.LinAlgError,
        "np.linalg.inv(float64(2, 3)): … must be square: np.linalg.pinv and np.linalg.svd",
    ),
    (
        lambda: np.linalg.det(V),
        np.linalg.LinAlgError,
        "np.linalg.det(float64(2, 3)): … must be square: np.linalg.pinv and np.linalg.svd",
    ),
    (lambda: np.linalg.det(S), np.linalg.LinAlgError, "np.linalg.det(float64()): … give a matrix, or a stack of them"),
    (
        lambda: np.linalg.cholesky(V),
        np.linalg.LinAlgError,
        "np.linalg.cholesky(float64(2, 3)): … must be square: np.linalg.pinv and np.linalg.svd",
    ),
    (
        lambda: np.linalg.cholesky(-(M + 0 * SQ)),
        np.linalg.LinAlgError,
        "np.linalg.cholesky(float64(3, 3)): … only symmetric matrices with eigenvalues above",
    ),
    (
        lambda: np.linalg.solve(SQ * 0, M[0]),
        np.linalg.LinAlgError,
        "np.linalg.solve(float64(3, 3), float64(3,)): … it has no inverse: see np.linalg.pinv",
    ),
    (
        lambda: np.linalg.norm(V, ord="odd"),
        ValueError,
        "np.linalg.norm(float64(2, 3), ord='odd'): there is no norm of order 'odd' for matrices: 'fro', 'nuc', 1,",
    ),
    (
        lambda: np.pad(V, 1, mode="odd"),
        ValueError,
        "np.pad(float64(2, 3), 1, mode='odd'): … there are constant, edge, linear_ramp",
    ),
    (lambda: np.pad(V, -1), ValueError, "np.pad(float64(2, 3), -1): index can't contain negative values"),
    (
        lambda: np.roll(V, 1, axis=4),
        np.exceptions.AxisError,
        "np.roll(float64(2, 3), 1, axis=4): … axes count from 0 at the front",
    ),
    (
        lambda: np.cumsum(V, axis=3),
        np.exceptions.AxisError,
        "np.cumsum(float64(2, 3), axis=3): … axes count from 0 at the front",
    ),
    (
        lambda: np.sort(V, axis=3),
        np.exceptions.AxisError,
        "np.sort(float64(2, 3), axis=3): … axes count from 0 at the front",
    ),
    (lambda: np.partition(V, 9), ValueError, "np.partition(float64(2, 3), 9): kth(=9) out of bounds (3)"),
    (
        lambda: np.interp(V, [0, 1], V),
        ValueError,
        "np.interp needs xp and fp to be vectors of one length, not of shapes (2,), (2, 3)",
    ),
    # transforms
    (
        lambda: ng.grad(np.exp)(X),
        ValueError,
        "grad needs a scalar, but exp returned an array of shape (2, 3): use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.grad(np.sum)(np.arange(3)),
        TypeError,
        "a must be a float array, not int64; convert it with .astype(float)",
    ),
    (
        lambda: ng.grad(np.sum)([X, np.arange(3)]),
        TypeError,
        "a[1] must be a float array, not int64; convert it with .astype(float)",
    ),
    (
        lambda: ng.grad(np.sum, argnums=1)(X),
        TypeError,
        "argument 1 is to be differentiated, but there are 1 positional ones, from 0",
    ),
    (
        lambda: ng.grad(np.sum, argnums=(0, 2))(X),
        TypeError,
        "argument 2 is to be differentiated, but there are 1 positional ones, from 0",
    ),
    (
        lambda: ng.grad(lambda x: (np.sum(x), x))(X),
        ValueError,
        "grad needs a scalar, but <lambda> returned a tuple: use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.grad(lambda x: [np.sum(x)])(X),
        ValueError,
        "grad needs a scalar, but <lambda> returned a list: use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.grad(lambda x: None)(X),
        ValueError,
        "grad needs a scalar, but <lambda> returned a NoneType: use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.grad(lambda x: "text")(X),
        ValueError,
        "grad needs a scalar, but <lambda> returned a str: use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.grad(np.sum, has_aux=True)(X),
        TypeError,
        "with has_aux=True, sum must return (value, aux), not Variable",
    ),
    (
        lambda: ng.grad(lambda x: (np.sum(x), 1, 2), has_aux=True)(X),
        TypeError,
        "with has_aux=True, <lambda> must return (value, aux), not tuple",
    ),
    (
        lambda: ng.grad(np.sum)(),
        TypeError,
        "argument 0 is to be differentiated, but there are 0 positional ones, from 0",
    ),
    (lambda: ng.grad(np.sum)("text"), TypeError, "a must be a float array, not <U4"),
    (lambda: ng.grad(np.sum)({"a": "text"}), TypeError, "a['a'] must be a float array, not <U4"),
    (lambda: ng.grad(None)(X), TypeError, "None is not a callable object"),
    (lambda: ng.vjp(3, X), TypeError, "3 is not a callable object"),
    (lambda: ng.jacobian("text")(X), TypeError, "'text' is not a callable object"),
    (
        lambda: ng.value_and_grad(lambda x: x)(X),
        ValueError,
        "grad needs a scalar, but <lambda> returned an array of shape (2, 3): use np.sum, or ng.vjp or",
    ),
    (
        lambda: ng.vjp(np.exp, X)[1](np.ones(7)),
        ValueError,
        "a cotangent or tangent has shape (7,) where the value has shape (2, 3)",
    ),
    (lambda: ng.vjp(np.exp, X)[1]([X]), ValueError, "trees differ at the top: a leaf against list with ['[0]']"),
    (
        lambda: ng.vjp(lambda x: (x, x), X)[1](X),
        ValueError,
        "trees differ at the top: tuple with ['[0]', '[1]'] against a leaf",
    ),
    (
        lambda: ng.vjp(lambda x: {"a": x}, X)[1]({"b": X}),
        ValueError,
        "trees differ at the top: dict with [\"['a']\"] against dict with [\"['b']\"]",
    ),
    (
        lambda: ng.jvp(np.exp, X, X),
        TypeError,
        "primals and tangents must be tuples with one tree per argument: jvp(f, (x,), (dx,))",
    ),
    (
        lambda: ng.jvp(np.exp, (X,), (np.ones(4),)),
        ValueError,
        "a cotangent or tangent has shape (4,) where the value has shape (2, 3)",
    ),
    (
        lambda: ng.jvp(np.exp, (X,), (X, X)),
        ValueError,
        "trees differ at the top: tuple with ['[0]'] against tuple with ['[0]', '[1]']",
    ),
    (
        lambda: ng.jvp(lambda n: n**2.0, (3,), (1.0,)),
        TypeError,
        "3 is not of floats, and so a constant: its tangent must be 0, or it a float array",
    ),
    (
        lambda: np.sum(V.sum(dim=0)),
        TypeError,
        "unexpected keyword argument 'dim' … NumPy's are axis and keepdims",
    ),
    (lambda: ng.jvp(np.exp, (X,), ([X],)), ValueError, "trees differ at [0]: a leaf against list with ['[0]']"),
    (
        lambda: ng.jacobian(np.exp)(np.arange(3)),
        TypeError,
        "must be a float array, not int64; convert it with .astype(float)",
    ),
    (
        lambda: ng.jacobian(np.exp, argnums=3)(X),
        TypeError,
        "argument 3 is to be differentiated, but there are 1 positional ones, from 0",
    ),
    (
        lambda: ng.hessian(np.exp)(X),
        ValueError,
        "grad needs a scalar, but exp returned an array of shape (2, 3): use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.hessian(np.sum)(np.arange(3)),
        TypeError,
        "a must be a float array, not int64; convert it with .astype(float)",
    ),
    (
        lambda: ng.hvp(np.sum, (X,), (np.ones(4),)),
        ValueError,
        "a cotangent or tangent has shape (4,) where the value has shape (2, 3)",
    ),
    (
        lambda: ng.hvp(np.exp, (X,), (X,)),
        ValueError,
        "grad needs a scalar, but exp returned an array of shape (2, 3): use np.sum, or ng.vjp or ng.jacobian",
    ),
    (
        lambda: ng.hvp(np.sum, X, X),
        TypeError,
        "args and vectors must be tuples with one tree per argument: hvp(f, (x, y), (vx, vy))",
    ),
    (
        lambda: ng.check_grads(np.exp, np.arange(3)),
        TypeError,
        "exp has no float array among its arguments: there is no gradient to check",
    ),
    (
        lambda: ng.check_grads(lambda x: ng.stop_gradient(x) * x, X),
        ng.check.GradientError,
        "<lambda>: fail, 6 coordinates",
    ),
    (
        lambda: ng.check_grads(lambda x: x * np.nan, X),
        ng.check.GradientError,
        "<lambda>: fail, 6 coordinates",
    ),
    (lambda: ng.check_grads(3, X), TypeError, "3 is not a callable object"),
    # trees
    (
        lambda: tree.map(np.add, {"a": 1}, {"b": 1}),
        ValueError,
        "trees differ at the top: dict with [\"['a']\"] against dict with [\"['b']\"]",
    ),
    (
        lambda: tree.map(np.add, [1], (1,)),
        ValueError,
        "trees differ at the top: list with ['[0]'] against tuple with ['[0]']",
    ),
    (
        lambda: tree.map(np.add, [1, 2], [1]),
        ValueError,
        "trees differ at the top: list with ['[0]', '[1]'] against list with ['[0]']",
    ),
    (
        lambda: tree.map(np.add, {"a": [1]}, {"a": 1}),
        ValueError,
        "trees differ at ['a']: list with ['[0]'] against a leaf",
    ),
    (lambda: tree.unflatten([1, 2], [1]), ValueError, "1 leaves for a tree that has 2"),
    # primitives
    (
        lambda: registered(lambda out: None),
        TypeError,
        "a rule of <lambda> must accept (out, *args, **kwargs), as <lambda> does: too many positional",
    ),
    (
        lambda: registered(lambda out, x, y: None),
        TypeError,
        "a rule of <lambda> must accept (out, *args, **kwargs), as <lambda> does: missing a required",
    ),
    (
        lambda: registered(lambda: None),
        TypeError,
        "a rule of <lambda> must accept (out, *args, **kwargs), as <lambda> does: too many positional",
    ),
    (lambda: wrong_shape(), ValueError, "a pullback of <lambda> gave shape (7,) for an argument of shape (2, 3)"),
    (lambda: no_pullback(), TypeError, "must return its pullback, a function of the cotangent"),
    (
        lambda: constant_argument(),
        TypeError,
        "<lambda> has no derivative with respect to argument 1 (y): pass ng.stop_gradient(x) for a constant",
    ),
    (
        lambda: ng.primitive(np.tanh)(V),
        TypeError,
        "tanh has no rule: give its derivative with @tanh.defvjp, or pass ng.stop_gradient(x)",
    ),
    (
        lambda: in_a_list(),
        TypeError,
        "this would take a Variable off its tape and lose its gradient (np.array, np.asarray, float, int…):",
    ),
    (
        lambda: ng.set_at(V, 9, 1.0),
        IndexError,
        "set_at(float64(2, 3), 9, float64()): … indices count from 0 at the front",
    ),
    (
        lambda: ng.set_at(X, 9, 1.0),
        IndexError,
        "set_at(float64(2, 3), 9, float64()): … indices count from 0 at the front",
    ),
    (
        lambda: ng.set_at(V, 0, np.ones(5)),
        ValueError,
        "set_at(float64(2, 3), 0, float64(5,)): … from the last axis backwards, sizes must be equal or 1",
    ),
    (
        lambda: ng.add_at(V, [0.5], 1.0),
        IndexError,
        "getitem(float64(2, 3), [0.5]): … can be made of integers by .astype(int)",
    ),
    # ops
    (
        lambda: ng.softmax(V, axis=2),
        np.exceptions.AxisError,
        "softmax(float64(2, 3), 2): … axes count from 0 at the front",
    ),
    (lambda: ng.softmax(np.array(["a"])), TypeError, "expected real numbers, not <U1"),
    (lambda: ng.softmax(np.ones(3, complex)), TypeError, "expected real numbers, not complex128"),
    (
        lambda: ng.log_softmax(V, axis=5),
        np.exceptions.AxisError,
        "log_softmax(float64(2, 3), 5): … axes count from 0 at the front",
    ),
    (lambda: ng.logsumexp(V, axis=(0, 0)), ValueError, "logsumexp(float64(2, 3), (0, 0)): … name each axis once"),
    (
        lambda: ng.logsumexp(X, axis=2),
        np.exceptions.AxisError,
        "logsumexp(float64(2, 3), 2): … axes count from 0 at the front",
    ),
    (lambda: ng.softmax(np.ones((2, 0)).astype(object)), TypeError, "expected real numbers, not object"),
    (
        lambda: ng.causal_mask(np.ones(3)),
        ValueError,
        "scores must have shape (..., queries, keys), but have shape (3,)",
    ),
    (
        lambda: ng.causal_mask(V, offset=0.5),
        TypeError,
        "causal_mask(float64(2, 3), offset=0.5): … give an integer: int(x)",
    ),
    (
        lambda: ng.causal_mask(V, window=0),
        ValueError,
        "a window of 0 keys shows nothing: it must be at least 1, or None for no limit",
    ),
    (
        lambda: ng.causal_mask(V, window=-1),
        ValueError,
        "a window of -1 keys shows nothing: it must be at least 1, or None for no limit",
    ),
    (
        lambda: ng.attention(np.ones(3), np.ones(3), np.ones(3)),
        ValueError,
        "attention needs q, k and v of shape (..., heads, tokens, width), not (3,), (3,), (3,)",
    ),
    (
        lambda: ng.attention(Q, Q[..., :2], Q),
        ValueError,
        "q and k must have one width, k and v the same heads and tokens, but q, k and v are (1, 1, 4, 3),",
    ),
    (
        lambda: ng.attention(Q, Q, Q[..., :2, :]),
        ValueError,
        "q and k must have one width, k and v the same heads and tokens, but q, k and v are (1, 1, 4, 3),",
    ),
    (
        lambda: ng.attention(np.ones((1, 3, 4, 2)), np.ones((1, 2, 4, 2)), np.ones((1, 2, 4, 2))),
        ValueError,
        "3 query heads can't share 2 key/value heads: give a multiple of them",
    ),
    (
        lambda: ng.self_attention(X, M, M, M, M, heads=1, tables=ROPE),
        TypeError,
        "must be a pair (cosines, sines), each of shape (..., tokens, width / 2), not one RotaryEmbedding: ng.Rot",
    ),
    (
        lambda: ng.self_attention(X, M, M, M, M, heads=1, tables=ROPE.cosines),
        TypeError,
        "must be a pair (cosines, sines), each of shape (..., tokens, width / 2), not one array of shape (8, 2): ng.",
    ),
    (
        lambda: ng.self_attention(X, M, M, M, M, heads=1, tables="ab"),
        TypeError,
        "must be a pair (cosines, sines), each of shape (..., tokens, width / 2), not one str: ng.RotaryEmbedding",
    ),
    (lambda: ng.self_attention(X, M, M, M, M, heads=1.0), TypeError, "heads must be an integer, not 1.0"),
    (
        lambda: ng.self_attention(X, M, M, M, M, M, heads=1),
        ValueError,
        "and after them biases as long as their products, but … wo (3, 3), bq (3, 3)",
    ),
    (
        lambda: ng.rms_norm(V, np.ones(4)),
        ValueError,
        "rms_norm needs x of shape (..., width) and a weight of shape (width,), but they have shapes (2, 3)",
    ),
    (
        lambda: ng.rms_norm(1.0, 1.0),
        ValueError,
        "rms_norm needs x of shape (..., width) and a weight of shape (width,), but they have shapes () and",
    ),
    (
        lambda: ng.layer_norm(V, np.ones(4), np.ones(3)),
        ValueError,
        "layer_norm needs x of shape (..., width) and a weight of shape (width,), but they have shapes (2,",
    ),
    (
        lambda: ng.linear(V, np.ones((4, 4))),
        ValueError,
        "linear needs x (..., inputs), weight (inputs, outputs) and bias (outputs,), but the shapes given",
    ),
    (
        lambda: ng.linear(V, np.ones(3), np.ones(3)),
        ValueError,
        "linear needs x (..., inputs), weight (inputs, outputs) and bias (outputs,), but the shapes given",
    ),
    (lambda: ng.embedding(X, np.array([0.5])), TypeError, "ids of a table of 2 rows must be integers, not float64"),
    (
        lambda: ng.embedding(X, [2]),
        IndexError,
        "ids of a table of 2 rows must be in 0..1, but 2 is among them: make the table longer, or look where",
    ),
    (
        lambda: ng.embedding(X, [-3]),
        IndexError,
        "ids of a table of 2 rows must be in 0..1, but -3 is among them: ids are counted from 0",
    ),
    (
        lambda: ng.embedding(X, V),
        TypeError,
        "embedding has no derivative with respect to argument 1 (ids): pass ng.stop_gradient(x) for a constant",
    ),
    (
        lambda: ng.embedding(np.array([1, 0]), X),
        TypeError,
        "an embedding's table comes first, but here the ids do: write embedding(table, ids)",
    ),
    (
        lambda: ng.embedding([1, 0], X),
        TypeError,
        "an embedding's table comes first, but here the ids do: write embedding(table, ids)",
    ),
    (
        lambda: ng.swiglu(V, np.ones((3, 5))),
        ValueError,
        "swiglu(float64(2, 3), float64(3, 5)): … x[:, None] adds an axis of size 1",
    ),
    (lambda: ng.silu("text"), TypeError, "expected real numbers, not <U4"),
    (
        lambda: ng.cross_entropy(V, [0]),
        ValueError,
        "logits must have shape (..., vocabulary) and targets the same without the last axis, but they have",
    ),
    (
        lambda: ng.cross_entropy(V, [0, 3]),
        IndexError,
        "targets for 3 logits must be in 0..2, but 3 is among them: ignore_index=… leaves tokens out",
    ),
    (
        lambda: ng.cross_entropy(V, [0, -1]),
        IndexError,
        "targets for 3 logits must be in 0..2, but -1 is among them: ignore_index=… leaves tokens out",
    ),
    (
        lambda: ng.cross_entropy(V, [0, 1], ignore_index=np.array([1, 2])),
        TypeError,
        "ignore_index must be an integer, not array([1, 2])",
    ),
    (lambda: ng.cross_entropy(V, [0.5, 1.0]), TypeError, "targets for 3 logits must be integers, not float64"),
    (
        lambda: ng.cross_entropy(V, V),
        ValueError,
        "logits must have shape (..., vocabulary) and targets the same without the last axis, but they have",
    ),
    (
        lambda: ng.cross_entropy(np.ones(3), [1]),
        ValueError,
        "logits must have shape (..., vocabulary) and targets the same without the last axis, but they have",
    ),
    # rotations
    (lambda: ng.RotaryEmbedding(0, 4), ng.RotaryError, "dim must be at least 2, not 0: there is nothing to turn"),
    (lambda: ng.RotaryEmbedding(5, 4), ng.RotaryError, "features turn in pairs, so dim must be even, not 5"),
    (lambda: ng.RotaryEmbedding(4, 0), ng.RotaryError, "a table needs at least one position, not 0"),
    (lambda: ng.RotaryEmbedding(4, 4, base=np.nan), ng.RotaryError, "base must be a finite number above 0, not nan"),
    (lambda: ng.RotaryEmbedding(4, 4, base=np.inf), ng.RotaryError, "base must be a finite number above 0, not inf"),
    (lambda: ng.RotaryEmbedding(4, 4, base=0.0), ng.RotaryError, "base must be a finite number above 0, not 0.0"),
    (lambda: ng.RotaryEmbedding(4, 4, base=-1.0), ng.RotaryError, "base must be a finite number above 0, not -1.0"),
    (
        lambda: ng.RotaryEmbedding(4, 4, base="10000"),
        ng.RotaryError,
        "base must be a finite number above 0, not '10000'",
    ),
    (lambda: ng.RotaryEmbedding(4, 4, layout="odd"), ng.RotaryError, "layout must be 'adjacent' or 'half', not 'odd'"),
    (lambda: ng.RotaryEmbedding(4, 4, rotary_dim=6), ng.RotaryError, "rotary_dim 6 exceeds the 4 features of a head"),
    (
        lambda: ng.RotaryEmbedding(4, 4, rotary_dim=3),
        ng.RotaryError,
        "features turn in pairs, so rotary_dim must be even, not 3",
    ),
    (
        lambda: ng.RotaryEmbedding(4, 2**62),
        ng.RotaryError,
        "a table of 4611686018427387904 positions by 2 pairs is too large to be represented",
    ),
    (lambda: ng.RotaryEmbedding(4.0, 4), TypeError, "dim must be an integer, not 4.0"),
    (
        lambda: ng.RotaryEmbedding(4, 4, scaling={"rope_type": "guess"}),
        ng.RotaryError,
        "unknown scaling type 'guess': known are default, linear, dynamic, yarn, longrope, llama3,",
    ),
    (
        lambda: ng.RotaryEmbedding(4, 4, scaling={"rope_type": "linear"}),
        ng.RotaryError,
        "scaling type 'linear' needs 'factor'",
    ),
    (
        lambda: ng.RotaryEmbedding(4, 4, scaling={"rope_type": "linear", "factor": 0}),
        ng.RotaryError,
        "'factor' must be a finite number above 0, not 0",
    ),
    (
        lambda: ng.RotaryEmbedding(4, 4, scaling={"rope_type": "linear", "factor": 2.0, "extra": 1}),
        ng.RotaryError,
        "unknown key 'extra' for scaling type 'linear', whose own keys are: factor",
    ),
    (lambda: ROPE.rotate(np.ones(4)), ng.RotaryError, "rotate needs x of shape (..., tokens, 4), but x has shape (4,)"),
    (
        lambda: ROPE.rotate(X),
        ng.RotaryError,
        "x has shape (2, 3), but this table is for heads of width 4: reshape x to (..., tokens, 4)",
    ),
    (
        lambda: ROPE.rotate(np.ones((9, 4))),
        ng.RotaryError,
        "positions 0 to 9 (exclusive) are not all in a table of 8: make it with a larger max_positions, or",
    ),
    (
        lambda: ROPE.rotate(np.ones((2, 4)), offset=-1),
        ng.RotaryError,
        "positions -1 to 1 (exclusive) are not all in a table of 8: make it with a larger max_positions, or",
    ),
    (
        lambda: ROPE.rotate(np.ones((2, 4)), offset=7),
        ng.RotaryError,
        "positions 7 to 9 (exclusive) are not all in a table of 8: make it with a larger max_positions, or",
    ),
    (
        lambda: ROPE.rotate(np.ones((2, 4)), offset=2**64),
        ng.RotaryError,
        "an offset of 18446744073709551616 with 2 tokens passes the last position that 64 bits can count",
    ),
    (lambda: ROPE.rotate(np.ones((2, 4)), offset=0.5), TypeError, "offset must be an integer, not 0.5"),
    (lambda: ROPE.rotate(np.ones((2, 4)), positions=[0.5, 1.0]), TypeError, "positions must be integers, not float64"),
    (
        lambda: ROPE.rotate(np.ones((2, 4)), positions=[0, 1, 2]),
        ng.RotaryError,
        "positions of shape (3,) don't fit x of shape (2, 4): they must be (2,), or (2, 2) with a row for",
    ),
    (
        lambda: ROPE.rotate(np.ones((2, 4)), 1, positions=[0, 1]),
        TypeError,
        "rotate takes an offset or positions, not both: add the offset to the positions",
    ),
    (
        lambda: ng.rotary_pairs(np.ones((2, 3)), ROPE.cosines[:2], ROPE.sines[:2]),
        ng.RotaryError,
        "features turn in pairs, so x's width must be even, not 3",
    ),
    (
        lambda: ng.rotary_pairs(np.ones((2, 4)), ROPE.cosines[:3], ROPE.sines[:3]),
        ng.RotaryError,
        "cosines (3, 2) and sines (3, 2) must both have a row for each of x's 2 tokens, and leading axes",
    ),
    (
        lambda: ng.rotary_pairs(np.ones((2, 4)), ROPE.cosines[:2], ROPE.sines[:2], layout="odd"),
        ng.RotaryError,
        "layout must be 'adjacent' or 'half', not 'odd'",
    ),
    (
        lambda: ng.adjacent_to_half(np.ones((6, 2)), head_dim=4),
        ng.RotaryError,
        "axis 0 has 6 features, which are not whole heads of 4",
    ),
    (lambda: ng.half_to_adjacent(np.ones(3)), ng.RotaryError, "features turn in pairs, so dim must be even, not 3"),
    # optimisers
    (
        lambda: optim.SGD({"w": np.arange(3)}, 0.1),
        TypeError,
        "params['w'] must be an array of real floating-point numbers, not int64",
    ),
    (lambda: optim.SGD({"w": X}, -0.1), ValueError, "the learning rate must be at least 0 and finite, not -0.1"),
    (lambda: optim.SGD({"w": X}, np.nan), ValueError, "the learning rate must be at least 0 and finite, not nan"),
    (lambda: optim.SGD({"w": X}, 0.1, momentum=1.0), ValueError, "momentum must be at least 0 and below 1, not 1.0"),
    (
        lambda: optim.SGD({"w": X}, 0.1, nesterov=True),
        ValueError,
        "nesterov needs momentum > 0 and no dampening, not 0.0 and 0.0",
    ),
    (
        lambda: optim.AdamW({"w": X}, 0.1, betas=(0.9, 1.0)),
        ValueError,
        "betas[1] must be at least 0 and below 1, not 1.0",
    ),
    (
        lambda: optim.AdamW({"w": X}, 0.1, betas=(0.9,)),
        ValueError,
        "AdamW needs two betas",
    ),
    (
        lambda: optim.AdamW({"w": X}, 0.1, eps=0.0),
        ValueError,
        "positive eps",
    ),
    (
        lambda: optim.AdamW({"w": X}, 0.1, weight_decay=-1.0),
        ValueError,
        "weight_decay must be at least 0 and finite, not -1.0",
    ),
    (
        lambda: optim.AdamW({"w": X}, lambda step: -1.0),
        ValueError,
        "the learning rate must be at least 0 and finite, not -1.0",
    ),
    (
        lambda: SGD.update({"v": X}),
        ValueError,
        "gradients must have the parameters' keys, but lacks ['w'] and has besides ['v']: give None for what is not",
    ),
    (
        lambda: SGD.update(optim.clip_by_global_norm({"w": X}, 1.0)),
        ValueError,
        "gradients is a pair with a number, as clip_by_global_norm and value_and_grad return: give the tree in it",
    ),
    (
        lambda: SGD.update((np.float64(1.0), {"w": X})),
        ValueError,
        "gradients is a pair with a number, as clip_by_global_norm and value_and_grad return: give the tree in it",
    ),
    (
        lambda: SGD.update({"w": X}, {"w": X}),
        TypeError,
        "update takes the gradients alone: its parameters are those that the optimiser was made of",
    ),
    (lambda: SGD.update({"w": X.T}), ValueError, "gradients['w'] has shape (3, 2), but its parameter has shape (2, 3)"),
    (
        lambda: SGD.update([X]),
        ValueError,
        "gradients is list with ['[0]'], but the parameters have dict with [\"['w']\"] there: give a tree like",
    ),
    (
        lambda: SGD.update({"w": np.ones((2, 3), complex)}),
        TypeError,
        "gradients['w'] must be an array of real floating-point numbers, not complex128",
    ),
    (
        lambda: SGD.restore({"step": 1}),
        ValueError,
        "trees differ at state: dict with [\"['step']\", \"['counts']\", \"['params']\", \"['velocity']\"] against",
    ),
    (
        lambda: SGD.restore({**SGD.state(), "params": {"w": X.T}}),
        ValueError,
        "state['params']['w'] is float64(3, 2), but this optimiser has float64(2, 3) there",
    ),
    (
        lambda: optim.clip_by_global_norm({"w": np.array([np.nan])}, 1.0),
        ValueError,
        "gradients['w'][0] is nan: only finite gradients can be clipped",
    ),
    (
        lambda: optim.clip_by_global_norm({"w": np.array([np.inf])}, 1.0),
        ValueError,
        "gradients['w'][0] is inf: only finite gradients can be clipped",
    ),
    (
        lambda: optim.clip_by_global_norm({"w": np.full(2, 1.7e308)}, 1.0),
        ValueError,
        "the norm of the gradients exceeds the largest float, 1.8e308: it can't be clipped",
    ),
    (
        lambda: optim.clip_by_global_norm({"w": np.full(2, np.finfo(np.longdouble).max)}, 1.0),
        ValueError,
        "the norm of the gradients exceeds the largest float, 1.8e308: it can't be clipped",
    ),
    (lambda: optim.clip_by_global_norm({"w": X}, -1.0), ValueError, "max_norm must be at least 0 and finite, not -1.0"),
    (lambda: optim.clip_by_value({"w": X}, np.nan), ValueError, "limit must be at least 0 and finite, not nan"),
    (
        lambda: optim.cosine_schedule(0.1, 5, warmup=5),
        ValueError,
        "a schedule needs 0 <= warmup < total, not a warmup of 5 and a total of 5",
    ),
    (
        lambda: optim.linear_schedule(0.1, 5, warmup=-1),
        ValueError,
        "a schedule needs 0 <= warmup < total, not a warmup of -1 and a total of 5",
    ),
    (lambda: optim.constant_schedule(np.inf), ValueError, "the learning rate must be at least 0 and finite, not inf"),
    # decoders
    (
        lambda: decoder.Config(**{**SIZES, "hidden_size": 0}),
        ValueError,
        "hidden_size must be an integer from 1 to 2147483647, not 0",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "hidden_size": 2.0}),
        ValueError,
        "hidden_size must be an integer from 1 to 2147483647, not 2.0",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "num_attention_heads": 3}),
        ValueError,
        "hidden_size 4 is not a multiple of num_attention_heads 3: give head_dim",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "num_key_value_heads": 3}),
        ValueError,
        "num_attention_heads 2 is not a multiple of num_key_value_heads 3: each key/value head serves the",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "num_hidden_layers": 10**9}),
        ValueError,
        "num_hidden_layers must be an integer from 1 to 10000, not 1000000000",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "model_type": "other"}),
        ValueError,
        "unknown architecture 'other': known are llama, mistral, qwen2",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "rope_theta": -1.0}),
        ng.RotaryError,
        "base must be a finite number above 0, not -1.0",
    ),
    (
        lambda: decoder.Config(**{**SIZES, "eos_token_id": "end"}),
        ValueError,
        "eos_token_id must be a token's number, or a list of them, not 'end'",
    ),
    (
        lambda: decoder.Config.from_dict({}),
        ValueError,
        "unknown architecture 'none given': known are llama, mistral, qwen2",
    ),
    (
        lambda: decoder.forward(CONFIG, PARAMS, np.array([[0.5]])),
        TypeError,
        "ids of a table of 5 rows must be integers, not float64",
    ),
    (
        lambda: decoder.forward(CONFIG, PARAMS, np.array([[9]])),
        IndexError,
        "ids of a table of 5 rows must be in 0..4, but 9 is among them: make the table longer, or look where",
    ),
    (
        lambda: decoder.forward(CONFIG, PARAMS, np.array([[-1]])),
        IndexError,
        "ids of a table of 5 rows must be in 0..4, but -1 is among them: ids are counted from 0",
    ),
    (
        lambda: decoder.forward(CONFIG, PARAMS, np.zeros((1, 99), int)),
        ng.RotaryError,
        "positions 0 to 99 (exclusive) are not all in a table of 8: make it with a larger max_positions, or",
    ),
    (
        lambda: decoder.loss(CONFIG, PARAMS, np.array([[0]]), np.array([[9]])),
        IndexError,
        "targets for 5 logits must be in 0..4, but 9 is among them: ignore_index=… leaves tokens out",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [], max_new_tokens=1)),
        ValueError,
        "a prompt must be a list of at least one token id, and a batch a list of such lists",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [99], max_new_tokens=1)),
        IndexError,
        "token ids must be in 0..4: the prompt has 99 to 99",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [0], max_new_tokens=-1)),
        ValueError,
        "max_new_tokens must be at least 0, not -1",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [0], max_new_tokens=99)),
        ValueError,
        "a prompt of 1 tokens and 99 new ones exceed max_position_embeddings 8",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [0], max_new_tokens=1, temperature=-1.0)),
        ValueError,
        "temperature must be a finite number of at least 0, which means greedy, not -1.0",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [0], max_new_tokens=1, temperature=1.0, top_p=0.0)),
        ValueError,
        "top_p must be above 0 and at most 1, or None, not 0.0",
    ),
    (
        lambda: list(decoder.generate(CONFIG, PARAMS, [0], max_new_tokens=1, temperature=1.0, top_k=0)),
        ValueError,
        "top_k must be at least 1, or None for all tokens, not 0",
    ),
    (
        lambda: decoder.from_llama(CONFIG, {}),
        ValueError,
        "the tensors don't fit the config: missing model.embed_tokens.weight; missing",
    ),
    (
        lambda: decoder.to_llama(CONFIG, {}),
        ValueError,
        "trees differ at params: dict with [\"['embedding']\", \"['blocks']\", \"['norm']\", \"['head']\"] against",
    ),
    (
        lambda: decoder.load("nowhere"),
        FileNotFoundError,
        "nowhere has no config.json: give the folder of a whole checkpoint",
    ),
    (
        lambda: training.resume("nowhere", SGD, np.random.default_rng(0)),
        training.StateError,
        "nowhere has no step-*.safetensors to go on from",
    ),
    (
        lambda: training.restore("nowhere", SGD, np.random.default_rng(0)),
        FileNotFoundError,
        "there is no nowhere: training.states(folder) lists what is there",
    ),
]


def everything():
    """What a mistake could have changed."""
    arrays = [X, M, Q, ROPE.cosines, ROPE.sines, *tree.leaves(PARAMS), *tree.leaves(SGD.state())]
    held = [(a.tobytes(), a.shape, a.dtype, a.flags.writeable) for a in arrays]
    return held, [(v.tape.released, v.value.tobytes()) for v in (V, S, SQ, W)], dict(REGISTRY), np.geterr()


@pytest.fixture(autouse=True)
def _own_folder_and_primitives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = len(PRIMITIVES)
    yield
    del PRIMITIVES[count:]


@pytest.mark.parametrize(("call", "error", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_an_error_that_says_what_to_do_and_changes_nothing(call, error, words, tmp_path):
    before = everything()
    with pytest.raises(error) as caught:
        call()
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert all(part in message for part in words.split(" … "))  # what stands between them are NumPy's own words
    assert everything() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: np.sum(V, axis=2), np.exceptions.AxisError),
        (lambda: np.linalg.inv(V), np.linalg.LinAlgError),
        (lambda: V[5], IndexError),
        (lambda: V + np.ones(4), ValueError),
        (lambda: np.reshape(V, (2.0, 3)), TypeError),
    ],
)
def test_numpys_errors_keep_their_class(call, kind):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind


@pytest.mark.parametrize("function", [np.sum, ng.softmax, np.sort])
def test_an_error_of_an_axis_keeps_what_it_says_to_programs(function):
    with pytest.raises(np.exceptions.AxisError) as caught:
        function(V, axis=-3)
    assert (caught.value.axis, caught.value.ndim) == (-3, 2)


def test_a_list_that_contains_itself_is_described():
    endless = [1]
    endless.append(endless)
    with pytest.raises(TypeError, match=r"^np\.reshape\(float64\(2, 3\), \[1, \[1, \[1, ") as caught:
        np.reshape(V, endless)
    assert len(str(caught.value)) < 500


def test_errors_of_ones_own_keep_their_words():
    @ng.primitive
    def mine(x):
        raise ValueError("mine alone")

    mine.defvjp(lambda out, x: lambda g: g)
    for x in (X, V):
        with pytest.raises(ValueError, match=r"^mine alone$"):
            mine(x)
    with pytest.raises(ValueError, match=r"^np\.apply_along_axis\(mine\(x\), 0, float64\(2, 3\)\): mine alone$"):
        np.apply_along_axis(mine, 0, V)


@pytest.mark.parametrize("arguments", [(), (7,), ("must be square", 7), ({"axis": "must be square"},)])
def test_errors_with_arguments_of_ones_own_keep_them(arguments):
    own = ValueError(*arguments)
    own.words = 3

    @ng.primitive
    def mine(x):
        raise own

    mine.defvjp(lambda out, x: lambda g: g)
    for call in (lambda: mine(V), lambda: np.apply_along_axis(mine, 0, V), lambda: ng.checkpoint(mine)(V)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  (its words don't matter)
            call()
        assert caught.value is own
        assert own.args == arguments


def test_words_that_one_changes_are_not_changed_back():
    @ng.primitive
    def mine(x):
        try:
            return V + np.ones(4)
        except ValueError as error:
            error.args = ("mine must be square",)
            raise

    with pytest.raises(ValueError, match=r"^mine\(float64\(2, 3\)\): mine must be square: "):
        mine(X)


def test_what_checkpoint_is_made_of_is_not_named():
    with pytest.raises(ValueError, match=r"^operands could not be broadcast"):
        ng.checkpoint(lambda x: x + np.ones(4))(V)


def test_arguments_are_shown_in_short():
    @ng.primitive
    def mine(x, *rest):
        return x + np.ones(4)

    mine.defvjp(lambda out, x, *rest: lambda g: g)
    with pytest.raises(ValueError, match="not be broadcast") as caught:
        mine(V, [1, 2, 3], [1] * 100, np.float32, {"a": np.ones(2)}, ())
    rest = "[1, 2, 3], [1, 1, 1, 1, 1, 1, ...], <class 'numpy.float32'>, {'a': array([1., 1.])}, ()"
    assert str(caught.value).startswith(f"mine(float64(2, 3), {rest}): ")


def test_there_are_many():
    assert len(MISTAKES) >= 150
