"""Whose arrays are whose: the tape's can't be written, the caller's aren't touched, gradients are the caller's own."""

import gc
import itertools
import weakref

import numpy as np
import pytest

import npgrad as ng

X = np.random.default_rng(0).normal(size=(4, 4))
OPERATIONS = {
    "exp": np.exp,
    "softmax": ng.softmax,
    "view": lambda x: x.T[1:],
    "reshape": lambda x: x.reshape(2, 8),
    "broadcast": lambda x: np.broadcast_to(x, (3, 4, 4)),
    "identity": lambda x: x,
    "product": lambda x: x @ x,
    "fused": lambda x: ng.rms_norm(x, np.ones(4)),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_values_cannot_be_written_through(operation):
    tape = ng.Tape()
    mine = X.copy()
    y = operation(tape.variable(mine))
    for value in (y.value, ng.stop_gradient(y)):
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            value += 1.0
    assert mine.flags.writeable
    mine[...] = mine  # still the caller's to write
    np.testing.assert_array_equal(y.value, operation(X))


def test_a_value_of_an_older_tape_is_its_variable():
    outer, inner = ng.Tape(), ng.Tape()
    x = outer.variable(X)
    assert inner.variable(x).value is x


def test_results_are_ordinary_arrays():
    """What a transform returns is the caller's: it can be written."""
    (value, aux), g = ng.value_and_grad(lambda x: (np.sum(x * x), np.exp(x)), has_aux=True)(X)
    out, pullback = ng.vjp(np.exp, X)
    for array in (aux, g, out, *pullback(np.ones_like(X))):
        array[...] = 0.0
    assert value == np.sum(X * X)


def loss(p, x):
    return np.sum(p["b"] + x) + np.sum((x + p["b"]) * p["w"].T.T) + np.sum(p["c"][::-1][:1]) + np.sum(p["w"])


def test_gradients_are_writable_contiguous_and_unaliased():
    p = {"b": np.ones(4), "w": X.copy(), "c": np.ones(3), "unused": np.ones(2)}
    leaves = [*ng.tree.leaves(ng.grad(loss, argnums=(0, 1))(p, X)), *ng.tree.leaves(p), X]
    gradients = leaves[:5]
    for g in gradients:
        assert type(g) is np.ndarray
        assert g.flags.writeable
        assert g.flags.c_contiguous
        assert g.flags.owndata
    for a, b in itertools.combinations(leaves, 2):
        assert not np.shares_memory(a, b)


def test_read_only_and_shared_inputs_are_left_as_they_are():
    x = X.copy()
    x.flags.writeable = False
    cotangent = np.ones_like(x)
    cotangent.flags.writeable = False
    _, pullback = ng.vjp(lambda a, b: a @ b + a, x, x)
    first, second = pullback(cotangent)
    first[...], second[...] = 1, 2
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(cotangent, 1)
    assert not x.flags.writeable


@pytest.mark.parametrize("operation", [lambda x: x, lambda x: x.T.T, lambda x: x + 0.0], ids=["itself", "view", "sum"])
def test_a_cotangent_that_passes_through_stays_the_callers(operation):
    tape, cotangent = ng.Tape(), np.ones_like(X)
    x = tape.variable(X)
    y = operation(x)
    (g,) = tape.gradient(y, [x], cotangent, retain=True)
    assert not np.shares_memory(g, cotangent)
    (again,) = ng.vjp(operation, X)[1](cotangent)
    assert not np.shares_memory(again, cotangent)
    cotangent[...] = 7.0
    for adjoint in tape.adjoints.values():
        np.testing.assert_array_equal(adjoint, 1.0)


def test_a_cotangent_may_change_before_the_outer_sweep():
    def slopes(x):
        _, pullback = ng.vjp(lambda a: a**3, x)
        unit, found = np.zeros(2), []
        for i in range(2):
            unit[:] = 0
            unit[i] = 1
            found.append(pullback(unit)[0])
        return np.sum(np.stack(found))

    np.testing.assert_array_equal(ng.grad(slopes)(np.array([1.0, 2.0])), [6, 12])


def test_a_pullback_cannot_write_to_the_callers_cotangent():
    @ng.primitive
    def careless(x):
        return 2 * x

    @careless.defvjp
    def _(out, x):
        return lambda g: np.multiply(g, 2, out=g)

    with pytest.raises(ValueError, match="read-only"):
        ng.vjp(careless, X)[1](np.ones_like(X))


def test_the_callers_arrays_are_not_kept_longer_than_the_tape():
    x, constant = X.copy(), X.copy()
    seen = [weakref.ref(x), weakref.ref(constant)]
    gc.disable()  # no cycles: reference counts alone let go
    try:
        tape = ng.Tape()
        v = tape.variable(x)
        y = np.sum(v * constant @ v)
        tape.gradient(y, [v])
        del constant
        assert seen[1]() is None  # released with the records
        del tape, v, y, x
        assert seen[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("f", [np.exp, np.tanh, ng.softmax, np.transpose, lambda x: x])
def test_writing_to_an_output_reaches_neither_the_pullback_nor_the_argument(f):
    x, g = X.copy(), np.ones_like(f(X))
    out, pullback = ng.vjp(f, x)
    (before,) = pullback(g)
    out[...] = 7.0
    np.testing.assert_array_equal(pullback(g)[0], before)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize(
    ("f", "n"),
    [
        (np.ldexp, [0, 1, 2, 3]),
        (lambda x, n: np.roll(x, n, (0, 1)), [2, 3]),
        (ng.embedding, [0, 3, 3]),
        (ng.checkpoint(ng.embedding), [0, 3, 3]),
        (ng.cross_entropy, [0, 1, 2, 3]),
    ],
)
def test_integers_may_change_before_the_sweep(f, n):
    """A batch's ids are filled again for the next one."""
    n, g = np.array(n), np.random.default_rng(1).normal(size=np.shape(f(X, np.array(n))))
    _, pullback = ng.vjp(lambda x: f(x, n), X)
    (before,) = pullback(g)
    n[:] = 1
    np.testing.assert_array_equal(pullback(g)[0], before)
