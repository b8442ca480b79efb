"""sigmoid, silu, gelu and swiglu: reference values, both tails, precision."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import reference

import npgrad as ng

FUNCTIONS = {
    "sigmoid": ng.sigmoid,
    "silu": ng.silu,
    "gelu_erf": ng.gelu,
    "gelu_tanh": lambda x: ng.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * ng.sigmoid(1.702 * x),
}
CASES = {name: case for name, case in reference("ops").items() if case["op"] in FUNCTIONS}
MLPS = {"swiglu": ng.swiglu, "geglu": lambda gate, up: ng.gelu(gate, approximate="tanh") * up}


@pytest.mark.parametrize("name", CASES)
def test_reference_values(name):
    case = CASES[name]
    out, pullback = ng.vjp(FUNCTIONS[case["op"]], case["in"]["x"])
    # torch's tanh form cancels in the left tail, ours doesn't: that far they agree absolutely
    tolerance = {"rtol": 1e-12, "atol": 1e-15} if out.dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(out, case["out"]["y"], **tolerance)
    np.testing.assert_allclose(pullback(case["cot"]["y"])[0], case["grad"]["x"], **tolerance)


@pytest.mark.parametrize("name", MLPS)
def test_reference_values_of_gated_layers(name):
    case = reference("ops")[name]

    def layer(x, gate, up, down):
        return MLPS[name](x @ gate.T, x @ up.T) @ down.T

    names = ("x", "gate", "up", "down")
    out, pullback = ng.vjp(layer, *(case["in"][n] for n in names))
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-13)
    for n, found in zip(names, pullback(case["cot"]["y"])):
        np.testing.assert_allclose(found, case["grad"][n], rtol=1e-12, atol=1e-13)


def test_reference_values_of_swiglu_alone():
    case = reference("ops")["swiglu_elementwise"]
    out, pullback = ng.vjp(ng.swiglu, case["in"]["a"], case["in"]["b"])
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12)
    for n, found in zip("ab", pullback(case["cot"]["y"])):
        np.testing.assert_allclose(found, case["grad"][n], rtol=1e-12, atol=1e-15)


def test_gelu_keeps_its_digits_in_both_tails():
    x = np.concatenate([np.linspace(-36, 36, 289), [-1e-300, 0.0, 1e-300]])
    exact = np.array([0.5 * t * math.erfc(-t / math.sqrt(2)) for t in x])
    slope = np.array(
        [0.5 * math.erfc(-t / math.sqrt(2)) + t * math.exp(-t * t / 2) / math.sqrt(2 * math.pi) for t in x]
    )
    out, pullback = ng.vjp(ng.gelu, x)
    np.testing.assert_allclose(out, exact, rtol=3e-13)
    np.testing.assert_allclose(pullback(np.ones_like(x))[0], slope, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("function", FUNCTIONS.values())
def test_huge_inputs_overflow_nowhere(function):
    x = np.array([-1e200, -1e4, 1e4, 1e200])
    out, pullback = ng.vjp(function, x)
    np.testing.assert_array_equal(out, [0, 0, 1, 1] if function is ng.sigmoid else [0, 0, 1e4, 1e200])
    np.testing.assert_array_equal(pullback(np.ones(4))[0], [0, 0, 0, 0] if function is ng.sigmoid else [0, 0, 1, 1])


@pytest.mark.parametrize("f", [ng.silu, lambda x: ng.swiglu(x, 1.0)])
def test_the_second_derivative_of_silu_keeps_its_digits_in_both_tails(f):
    for x in (-700.0, -40.0, -1.0, 3.0, 20.0, 40.0, 700.0):
        up, down = (1 / (1 + math.exp(-t)) for t in (x, -x))
        assert ng.grad(ng.grad(f))(x) == pytest.approx(up * down * (2 + x * (down - up)), rel=1e-13, abs=0)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, (2, 5), elements=st.floats(-50, 50)), arrays(np.float64, 5, elements=st.floats(-50, 50)))
def test_swiglu_equals_its_reference(gate, up):
    (fast, pullback), (plain, plain_pullback) = ng.vjp(ng.swiglu, gate, up), ng.vjp(ng.swiglu.reference, gate, up)
    np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-300)
    g = np.random.default_rng(0).normal(size=(2, 5))
    for found, expected in zip(pullback(g), plain_pullback(g)):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@settings(deadline=None, max_examples=30)
@given(arrays(np.float64, 6, elements=st.floats(-40, 40)))
def test_symmetries(x):
    np.testing.assert_allclose(ng.sigmoid(x) + ng.sigmoid(-x), 1, rtol=1e-15)
    for function in (ng.silu, ng.gelu, FUNCTIONS["gelu_tanh"]):
        np.testing.assert_allclose(function(x) - function(-x), x, rtol=1e-14, atol=1e-14)


def test_numbers_lists_and_empties():
    assert ng.silu(0.0) == 0 and ng.sigmoid(0) == 0.5 and ng.gelu(1) == ng.gelu(1.0)  # noqa: PT018
    assert ng.swiglu(1.0, 2.0) == pytest.approx(2 / (1 + math.exp(-1)))
    for function in FUNCTIONS.values():
        assert function(np.zeros((0, 3))).shape == (0, 3)


def test_errors():
    with pytest.raises(ValueError, match='"none" or "tanh", not \'erf\''):
        ng.gelu(np.ones(2), approximate="erf")
    with pytest.raises(TypeError, match="complex128"):
        ng.silu(np.ones(2, complex))


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("f", [ng.silu, ng.gelu, FUNCTIONS["gelu_tanh"], lambda x: ng.swiglu(x, np.ones_like(x.value))])
def test_infinities_have_the_limits(f, dtype):
    tape = ng.Tape()
    x = tape.variable(np.array([-INF, INF, NAN, -1e4], dtype))
    y = f(x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.value, [0, INF, NAN, 0])
    np.testing.assert_array_equal(tape.gradient(y, [x], np.ones(4, dtype))[0], [0, 1, NAN, 0])


def test_the_slope_of_gelu_in_half_precision_stays_finite():
    x = np.array([200.0, -200.0, 1.0], np.float16)
    out, pullback = ng.vjp(FUNCTIONS["gelu_tanh"], x)
    np.testing.assert_allclose(out, [200, 0, 0.8412], rtol=1e-3)
    np.testing.assert_allclose(pullback(np.ones(3, np.float16))[0], [1, 0, 1.083], rtol=1e-3)
