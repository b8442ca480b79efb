"""grad, value_and_grad, vjp, jvp, stop_gradient: trees, nesting, errors, and the laws between them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import differences

import npgrad as ng


def loss(params, x):
    h = np.tanh(x @ params["w"] + params["b"][0])
    return np.sum(h * h) + params["scale"] * np.sum(params["b"][0])


@pytest.fixture
def params():
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(3, 4)), "b": [rng.normal(size=4), None], "scale": 0.5}


X = np.random.default_rng(1).normal(size=(2, 3))


def test_the_gradient_is_a_tree_like_the_argument(params):
    value, g = ng.value_and_grad(loss)(params, X)
    assert value == loss(params, X)
    assert g.keys() == params.keys()
    assert g["b"][1] is None
    leaves = ng.tree.leaves(params)
    expected = differences(lambda *p: loss(ng.tree.unflatten(params, p), X), leaves)
    for got, want in zip(ng.tree.leaves(g), expected):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
        assert type(got) is np.ndarray


def test_argnums(params):
    both = ng.grad(loss, (0, 1))(params, X)
    np.testing.assert_array_equal(both[1], ng.grad(loss, 1)(params, X))
    np.testing.assert_array_equal(both[1], ng.grad(loss, -1)(params, X))
    assert ng.grad(loss, ())(params, X) == ()
    np.testing.assert_array_equal(both[1], ng.grad(loss, np.int64(1))(params, X))
    with pytest.raises(TypeError, match="integer"):
        ng.grad(loss, "x")
    with pytest.raises(TypeError, match="argument 2 is to be differentiated, but there are 2"):
        ng.grad(loss, 2)(params, X)


def test_keyword_arguments_are_passed_on():
    assert ng.grad(lambda x, *, n: x**n)(3.0, n=2) == 6.0


def test_aux():
    f = lambda x: (x * x, {"twice": 2 * x, "note": "kept"})
    g, aux = ng.grad(f, has_aux=True)(3.0)
    assert (g, aux) == (6.0, {"twice": 6.0, "note": "kept"})
    (value, aux), g = ng.value_and_grad(f, has_aux=True)(3.0)
    assert (value, aux["twice"], g) == (9.0, 6.0, 6.0)
    assert type(aux["twice"]) is not ng.Variable
    with pytest.raises(TypeError, match=r"must return \(value, aux\)"):
        ng.grad(lambda x: x, has_aux=True)(1.0)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x, r"an array of shape \(2,\)"),
        (lambda x: x[:1], r"an array of shape \(1,\)"),
        (lambda x: [np.sum(x)], "a list"),
        (lambda x: None, "a NoneType"),
        (lambda x: True, "a bool"),
        (lambda x: object(), "a object"),
    ],
)
def test_a_result_that_is_no_scalar(f, words):
    with pytest.raises(ValueError, match=f"needs a scalar, but <lambda> returned {words}"):
        ng.grad(f)(np.ones(2))


def test_leaves_that_are_not_floats_are_named():
    with pytest.raises(TypeError, match=r"params\['ids'\]\[1\] must be a float array, not int64"):
        ng.grad(lambda params: params["x"])({"x": 1.0, "ids": [1.0, 2]})


def test_a_constant_function_has_zero_gradients():
    np.testing.assert_array_equal(ng.grad(lambda x: 3.0)(np.ones(2)), [0.0, 0.0])
    np.testing.assert_array_equal(ng.grad(lambda x: np.sum(x > 0))(np.ones(2)), [0.0, 0.0])


class TestNesting:
    def test_to_third_order(self):
        f = lambda x: np.sin(x) * x
        x = 0.7
        assert np.isclose(ng.grad(ng.grad(f))(x), 2 * np.cos(x) - x * np.sin(x), rtol=1e-14)
        assert np.isclose(ng.grad(ng.grad(ng.grad(f)))(x), -3 * np.sin(x) - x * np.cos(x), rtol=1e-14)

    def test_a_closure_over_an_outer_variable(self):
        f = lambda x: x * ng.grad(lambda y: x * y * y)(x)  # 2 x**3
        assert ng.grad(f)(3.0) == 54.0

    def test_no_confusion_of_perturbations(self):
        assert ng.grad(lambda x: x * ng.grad(lambda y: x + y)(1.0))(1.0) == 1.0
        assert ng.jvp(lambda x: x * ng.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1] == 1.0

    def test_an_inner_gradient_that_ignores_its_argument(self):
        assert ng.grad(lambda x: x * x + ng.grad(lambda y: x)(1.0))(3.0) == 6.0

    def test_forward_over_reverse_is_reverse_over_forward(self):
        f = lambda x: np.sum(np.exp(x[1:] * x[:-1]))
        x, v = np.array([0.1, 0.2, 0.3]), np.array([1.0, -2.0, 0.5])
        forward = ng.jvp(ng.grad(f), (x,), (v,))[1]
        reverse = ng.grad(lambda x: ng.jvp(f, (x,), (v,))[1])(x)
        np.testing.assert_allclose(forward, reverse, rtol=1e-14)


class TestVjp:
    def test_trees_in_and_out_and_a_pullback_to_be_called_again(self, params):
        f = lambda p, x: {"y": x @ p["w"], "s": (p["scale"] * 2,)}
        out, pullback = ng.vjp(f, params, X)
        np.testing.assert_array_equal(out["y"], X @ params["w"])
        g = {"y": np.ones((2, 4)), "s": (3.0,)}
        for _ in range(2):
            gp, gx = pullback(g)
            np.testing.assert_allclose(gp["w"], X.T @ np.ones((2, 4)))
            assert gp["scale"] == 6.0
            assert not gp["b"][0].any()
            np.testing.assert_allclose(gx, np.ones((2, 4)) @ params["w"].T)

    def test_integer_arguments_are_constants(self):
        _, pullback = ng.vjp(lambda x, ids: x[ids], np.array([1.0, 2.0]), np.array([1, 1]))
        g, none = pullback(np.array([10.0, 1.0]))
        np.testing.assert_array_equal(g, [0.0, 11.0])
        assert none is None

    def test_a_cotangent_of_another_shape(self):
        _, pullback = ng.vjp(np.exp, np.ones(3))
        with pytest.raises(ValueError, match=r"shape \(2,\) where the value has shape \(3,\)"):
            pullback(np.ones(2))
        with pytest.raises(ValueError, match="trees differ"):
            pullback([np.ones(3)])


class TestJvp:
    def test_errors(self):
        with pytest.raises(TypeError, match="tuples"):
            ng.jvp(np.sin, 1.0, 1.0)
        with pytest.raises(ValueError, match="shape"):
            ng.jvp(np.sin, (np.ones(2),), (np.ones(3),))

    def test_outputs_that_do_not_depend_on_the_input(self):
        _, tangent = ng.jvp(lambda x: (x * 2, np.ones(3), 5), (1.0,), (1.0,))
        assert tangent[0] == 2.0
        assert not np.any(tangent[1])
        assert tangent[2] == 0

    def test_integer_arguments(self):
        _, tangent = ng.jvp(lambda x, ids: x[ids], (np.arange(3.0), np.array([2, 0])), (np.ones(3), np.array([0, 0])))
        np.testing.assert_array_equal(tangent, [1.0, 1.0])


floats = st.floats(-2, 2)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(floats, min_size=6, max_size=6),
    st.lists(floats, min_size=6, max_size=6),
    st.lists(floats, min_size=4, max_size=4),
)
def test_the_adjoint_identity(x, dx, g):
    """⟨g, J dx⟩ = ⟨Jᵀ g, dx⟩."""
    f = lambda x: np.tanh(x @ np.arange(12.0).reshape(3, 4) / 7)
    x, dx, g = np.reshape(x, (2, 3)), np.reshape(dx, (2, 3)), np.outer([1, -0.5], g)
    _, pullback = ng.vjp(f, x)
    _, tangent = ng.jvp(f, (x,), (dx,))
    np.testing.assert_allclose(np.sum(g * tangent), np.sum(pullback(g)[0] * dx), rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(st.lists(floats, min_size=3, max_size=3), st.lists(floats, min_size=3, max_size=3))
def test_pullbacks_are_linear(g1, g2):
    _, pullback = ng.vjp(lambda x: np.exp(x) * x[::-1], np.array([0.1, -0.5, 0.9]))
    g1, g2 = np.array(g1), np.array(g2)
    both = pullback(2 * g1 - 3 * g2)[0]
    np.testing.assert_allclose(both, 2 * pullback(g1)[0] - 3 * pullback(g2)[0], rtol=1e-10, atol=1e-10)


def test_stop_gradient():
    assert ng.grad(lambda x: x * ng.stop_gradient(x))(3.0) == 3.0
    assert ng.grad(ng.grad(lambda x: x * x * ng.stop_gradient(x)))(3.0) == 6.0
    tape = ng.Tape()
    stopped = ng.stop_gradient({"a": [tape.variable(1.0)], "b": 2})
    assert type(stopped["a"][0]) is np.ndarray
    assert stopped["b"] == 2


def test_trees_are_matched_by_key_not_by_order():
    """A cotangent, a tangent and a vector are the caller's own dicts."""
    p, swapped = {"a": 1.0, "b": 2.0}, {"b": 0.0, "a": 1.0}
    assert ng.vjp(lambda x: {"a": 2 * x, "b": 7 * x}, 1.0)[1](swapped) == (2.0,)
    assert ng.jvp(lambda p: 3 * p["a"] + 5 * p["b"], (p,), (swapped,))[1] == 3.0
    assert ng.hvp(lambda p: p["a"] ** 2 * p["b"], (p,), (swapped,)) == ({"a": 4.0, "b": 2.0},)
