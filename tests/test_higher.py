"""Jacobians, Hessians and checkpointing, against closed forms and against what they replace."""

import tracemalloc

import numpy as np
import oracle
import pytest

import npgrad as ng

X = np.array([0.5, -1.0, 2.0])
WIDE = lambda x: np.outer(np.sin(x), x[:2])  # 6 results of 3 numbers: by columns
NARROW = lambda x: np.stack([np.sum(x * x), x[0] * x[1]])  # 2 results of 3 numbers: by rows


def by_differences(f, x):
    out = np.asarray(f(x))
    rows = [oracle.differences(f, [x], unit.reshape(out.shape))[0] for unit in np.eye(out.size)]
    return np.reshape(rows, out.shape + x.shape)


@pytest.mark.parametrize(
    "f", [WIDE, NARROW, lambda x: np.sum(np.exp(x)), lambda x: x[:0], lambda x: x[None, :, None] ** 3]
)
def test_jacobian(f):
    np.testing.assert_allclose(ng.jacobian(f)(X), by_differences(f, X).reshape(np.shape(f(X)) + (3,)), atol=1e-10)


def test_jacobian_sweeps_the_cheaper_way(monkeypatch):
    sweeps = []
    plain = ng.Tape.sweep
    monkeypatch.setattr(ng.Tape, "sweep", lambda *args, **kwargs: sweeps.append(1) or plain(*args, **kwargs))
    wide = ng.jacobian(lambda x: np.concatenate([np.sin(x)] * 50))(X)
    assert len(sweeps) == 1 + 3
    sweeps.clear()
    narrow = ng.jacobian(lambda x: np.sum(x * x)[None])(np.ones(50))
    assert len(sweeps) == 1
    assert (wide.shape, narrow.shape) == ((150, 3), (1, 50))


def test_jacobian_of_trees():
    f = lambda p, scale: {"y": p["w"] * p["b"] * scale, "c": [p["b"] ** 2], "constant": 3.0}
    found = ng.jacobian(f)({"w": X, "b": np.array(2.0)}, 10.0)
    np.testing.assert_allclose(found["y"]["w"], 20 * np.eye(3))
    np.testing.assert_allclose(found["y"]["b"], 10 * X)
    np.testing.assert_allclose(found["c"][0]["b"], 4)
    assert not found["c"][0]["w"].any()
    assert not found["constant"]["w"].any()
    pair = ng.jacobian(np.multiply, argnums=(0, 1))(X, 2 * X)
    np.testing.assert_allclose(pair[0], np.diag(2 * X))
    np.testing.assert_allclose(pair[1], np.diag(X))


@pytest.mark.parametrize("f", [WIDE, NARROW])
def test_jacobian_of_a_jacobian(f):
    np.testing.assert_allclose(ng.jacobian(ng.jacobian(f))(X), by_differences(ng.jacobian(f), X), atol=1e-9)


def test_jacobian_keeps_float32_and_refuses_integers():
    for f in (WIDE, NARROW):
        assert ng.jacobian(f)(X.astype(np.float32)).dtype == np.float32
    with pytest.raises(TypeError, match="float"):
        ng.jacobian(NARROW)(np.arange(3))


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_an_argnum_may_be_any_integer_as_for_grad():
    x, y = np.array([1.0, 2.0]), np.float64(3.0)
    for f in (ng.jacobian, ng.hessian):
        np.testing.assert_array_equal(
            f(lambda y, x: np.sum(x**3) * y, np.int64(1))(y, x), f(lambda x: np.sum(x**3) * y)(x)
        )
    with pytest.raises(TypeError, match="interpreted as an integer"):
        ng.jacobian(np.sin, "0")


def test_hessian():
    got = ng.hessian(rosenbrock)(X)
    np.testing.assert_allclose(got, by_differences(ng.grad(rosenbrock), X), rtol=1e-8)
    np.testing.assert_allclose(got, got.T)
    blocks = ng.hessian(lambda p: np.sum(p["a"] ** 2) * p["b"])({"a": X, "b": np.array(3.0)})
    np.testing.assert_allclose(blocks["a"]["a"], 6 * np.eye(3))
    np.testing.assert_allclose(blocks["a"]["b"], 2 * X)
    np.testing.assert_allclose(blocks["b"]["a"], 2 * X)
    assert blocks["b"]["b"] == 0


def test_hvp_is_the_hessian_times_a_vector():
    v = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(ng.hvp(rosenbrock, (X,), (v,))[0], ng.hessian(rosenbrock)(X) @ v)
    f = lambda p, tokens: np.sum(p["w"][tokens] ** 3) * p["b"]
    p = {"w": X, "b": np.array(2.0)}
    (found, none) = ng.hvp(f, (p, np.array([0, 0, 2])), ({"w": v, "b": np.array(1.0)}, None))
    assert none is None
    counts = np.array([2, 0, 1])
    np.testing.assert_allclose(found["w"], counts * (12 * X * v + 3 * X**2))
    np.testing.assert_allclose(found["b"], np.sum(counts * 3 * X**2 * v))
    with pytest.raises(TypeError, match="tuples with one tree per argument"):
        ng.hvp(rosenbrock, X, v)


def block(p, *, x, shift=0.0):
    h = np.tanh(x @ p["w"] + p["b"]) + shift
    return {"h": h, "norm": np.sum(h * h), "count": 3}


def loss(wrap):
    def total(p, x, shift):
        out = wrap(block)(p, x=x, shift=shift)
        out = wrap(block)(p, x=out["h"], shift=out["norm"] / out["count"])
        return np.sum(np.sin(out["h"])) * out["norm"]

    return total


ARGS = (
    {"w": np.random.default_rng(0).normal(size=(3, 3)) / 2, "b": X / 3},
    np.random.default_rng(1).normal(size=(4, 3)),
    np.array(0.3),
)


def assert_same(found, expected):
    for got, want in zip(ng.tree.leaves(found), ng.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_checkpoint_changes_nothing_at_any_order():
    plain, saved = loss(lambda f: f), loss(ng.checkpoint)
    assert plain(*ARGS) == saved(*ARGS)
    assert_same(ng.grad(saved, (0, 1, 2))(*ARGS), ng.grad(plain, (0, 1, 2))(*ARGS))
    assert_same(ng.hessian(saved, (0, 2))(*ARGS), ng.hessian(plain, (0, 2))(*ARGS))
    assert_same(ng.jvp(saved, ARGS, ARGS), ng.jvp(plain, ARGS, ARGS))
    assert_same(ng.hvp(saved, ARGS, ARGS), ng.hvp(plain, ARGS, ARGS))
    third = lambda f: ng.grad(lambda s: ng.grad(lambda s: ng.grad(f, 2)(*ARGS[:2], s))(s))(ARGS[2])
    np.testing.assert_allclose(third(saved), third(plain))


def test_checkpoint_of_mixed_precision_and_constants():
    f = ng.checkpoint(lambda x, n: (x.astype(np.float64) * n, np.sum(x), None, n))
    tape = ng.Tape()
    x = tape.variable(X.astype(np.float32))
    wide, total, none, n = f(x, 2)
    assert (wide.dtype, total.dtype, none, n) == (np.float64, np.float32, None, 2)
    (g,) = tape.gradient(np.sum(wide) + total, [x])
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, [3, 3, 3])


def test_checkpoint_keeps_less_memory():
    x = np.ones(100_000)
    chain = lambda x: np.sin(np.cos(np.sin(np.cos(np.sin(np.cos(x))))))

    def held(f):
        tape = ng.Tape()
        v = tape.variable(x)
        tracemalloc.start()
        y = f(f(v))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert y.shape == x.shape
        return size / x.nbytes

    assert held(chain) > 11
    assert held(ng.checkpoint(chain)) < 3.5


def test_checkpoint_refuses_variables_from_outside_and_results_without_floats():
    tape = ng.Tape()
    x, w = tape.variable(X), tape.variable(X)
    with pytest.raises(TypeError, match="from outside: pass it as an argument"):
        ng.checkpoint(lambda x: x * w)(x)
    with pytest.raises(TypeError, match="no float array"):
        ng.checkpoint(lambda x: 3)(x)
    np.testing.assert_array_equal(ng.checkpoint(lambda x: x + 1)(X), X + 1)


def test_derivatives_of_constants_have_the_precision_of_the_rest():
    x = np.ones(2, np.float32)
    assert ng.hessian(lambda x: np.sum(3 * x))(x).dtype == np.float32
    for constant in (np.ones(3, np.float32), np.arange(3), 2.0, [1.0]):
        got = ng.jacobian(lambda x, c=constant: c)(x)
        got = got[0] if isinstance(got, list) else got
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, np.zeros((*np.shape(constant)[: got.ndim - 1], 2)))
    assert ng.jacobian(lambda x: np.ones(3))(x).dtype == np.float64
