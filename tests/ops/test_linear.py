"""linear: reference values, shapes, errors; it differs from a product with @ in speed alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng


def test_reference_values():
    case = reference("ops")["linear_bias"]
    out, pullback = ng.vjp(lambda x, w, b: ng.linear(x, w.T, b), *(case["in"][n] for n in ("x", "weight", "bias")))
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12)
    for n, found in zip(("x", "weight", "bias"), pullback(case["cot"]["y"])):
        np.testing.assert_allclose(found, case["grad"][n], rtol=1e-12, atol=1e-14)


def test_reference_values_of_two_layers():
    case = reference("ops")["mlp_two_layers"]
    names = ("x", "w1", "b1", "w2", "b2")

    def layers(x, w1, b1, w2, b2):
        return ng.linear(ng.gelu(ng.linear(x, w1.T, b1)), w2.T, b2)

    out, pullback = ng.vjp(layers, *(case["in"][n] for n in names))
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-14)
    for n, found in zip(names, pullback(case["cot"]["y"])):
        np.testing.assert_allclose(found, case["grad"][n], rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_fused_equals_reference(lead, inputs, outputs, biased):
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s) for s in ((*lead, inputs), (inputs, outputs), (outputs,))][: 3 if biased else 2]
    (fast, pullback), (plain, plain_pullback) = ng.vjp(ng.linear, *args), ng.vjp(ng.linear.reference, *args)
    np.testing.assert_allclose(fast, plain, rtol=1e-13, atol=1e-13)
    g = rng.normal(size=fast.shape)
    for found, expected in zip(pullback(g), plain_pullback(g), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_bias_by_name():
    out, gradient = ng.value_and_grad(lambda b: np.sum(ng.linear(np.ones((3, 2)), np.eye(2), bias=b)))(np.ones(2))
    assert out == 12
    np.testing.assert_array_equal(gradient, [3, 3])


@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((), (1, 1)), ((2, 3), (3, 4), (3,)), ((3,), (3, 4), (1, 4))]
)
def test_errors(shapes):
    for function in (ng.linear, ng.linear.reference):
        with pytest.raises(
            ValueError, match=r"weight \(inputs, outputs\).*" + str(shapes[-1]).replace("(", r"\(")[:-1]
        ):
            function(*(np.ones(s) for s in shapes))


def test_a_list_as_bias_in_both_orders():
    loss = lambda x: np.sum(ng.linear(x, np.eye(2), [1, 2]) ** 2)
    np.testing.assert_array_equal(ng.grad(loss)(np.ones(2)), [4, 6])
    np.testing.assert_array_equal(ng.hessian(loss)(np.ones(2)), 2 * np.eye(2))
