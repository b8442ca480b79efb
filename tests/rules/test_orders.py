"""Third derivatives and forward mode, once for each function that has examples."""

import numpy as np
import pytest
import rule_checks

import npgrad as ng
from npgrad.check import EXAMPLES
from npgrad.variable import REGISTRY

MODULES = ("elementwise", "reductions", "sorting", "statistics", "polynomials")
FIRST = {p.id.rstrip("0123456789"): p for module in MODULES for p in reversed(rule_checks.examples(module))}


def test_every_function_has_an_example():
    declared = {(f.__self__, f.__name__) if isinstance(getattr(f, "__self__", 0), np.ufunc) else f for f in EXAMPLES}
    homes = {f"npgrad.rules.{module}" for module in MODULES}
    assert {f for f in REGISTRY if rule_checks.home(f) in homes} <= declared


def directions(arrays):
    random = np.random.default_rng(3)
    return [random.normal(size=a.shape) for a in arrays]


@pytest.mark.parametrize("example", FIRST.values())
def test_third_derivative_in_a_direction(example):
    function, _, arrays = rule_checks.flat(example)
    first = rule_checks.weighted(function)
    second = rule_checks.weighted(lambda *arrays: rule_checks.gradients(first, arrays), seed=1)
    third = rule_checks.weighted(lambda *arrays: rule_checks.gradients(second, arrays), seed=2)
    direction = directions(arrays)
    got = sum(np.sum(g * d) for g, d in zip(rule_checks.gradients(third, arrays), direction))
    wide = np.float64 if example.function in rule_checks.DOUBLE_ONLY else np.longdouble
    at = lambda h: third(*(a.astype(wide) + h * d for a, d in zip(arrays, direction)))
    h = wide(1e-3) if wide is np.float64 else wide(1e-4)
    want = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    np.testing.assert_allclose(float(got), float(want), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("example", FIRST.values())
def test_forward_mode_is_the_transpose_of_reverse(example):
    function, _, arrays = rule_checks.flat(example)
    direction = directions(arrays)
    outputs, tangents = ng.jvp(lambda *arrays: function(*arrays), tuple(arrays), tuple(direction))
    forward = sum(
        np.sum(rule_checks.signed(np.shape(y), [0, i]) * t) for i, (y, t) in enumerate(zip(outputs, tangents))
    )
    found = rule_checks.gradients(rule_checks.weighted(function), arrays)
    np.testing.assert_allclose(forward, sum(np.sum(g * d) for g, d in zip(found, direction)), rtol=1e-10, atol=1e-11)
