"""Public bug reports about gradient checkers: none of them is npgrad's."""

import numpy as np
import pytest
from data.cases import REGISTRY

from npgrad.check import check_grads, check_vjp

CASES = {case.__name__: case for case in REGISTRY if case.__name__.startswith("gradcheck_")}


def test_all_of_them_are_here():
    assert sorted(CASES) == ["gradcheck_float32_noise", "gradcheck_kink", "gradcheck_non_contiguous"]


def test_float32_noise():
    """A correct linear layer in float32 passes, and the differences are right in more digits than float32 has."""
    case = CASES["gradcheck_float32_noise"]()
    x, w = case["inputs"]["x"], case["inputs"]["w"]
    report = check_grads(lambda x: np.sum(w * x), x)
    assert report
    assert np.allclose(report.leaves[0].numeric.astype(float), case["expected_grads"]["x"], rtol=1e-12)


def test_non_contiguous():
    case = CASES["gradcheck_non_contiguous"]()
    x, c = case["inputs"]["x"], case["inputs"]["c"]
    before = x.copy()
    report = check_grads(lambda x: np.sum(c * np.sin(x)), x)
    assert report
    numeric = report.leaves[0].numeric.astype(float).reshape(x.shape)
    assert np.allclose(numeric, case["expected_grads"]["x"].astype(float), rtol=1e-11)
    assert np.array_equal(x, before)
    assert not x.flags.c_contiguous


def relu_vjp(g, x):
    return g * (x > 0)


def test_kink():
    """At 0 the coordinate is listed with both slopes; 1e-7 from it, and away from it, relu passes as smooth."""
    at_zero, near, away = (step["inputs"]["x"] for step in CASES["gradcheck_kink"]()["steps"])
    report = check_vjp(lambda x: np.sum(np.maximum(x, 0)), relu_vjp, at_zero)
    assert report.non_smooth == [("x", (0,), 0.0, 1.0)]
    for x in (near, away):
        report = check_vjp(lambda x: np.sum(np.maximum(x, 0)), relu_vjp, x)
        assert report.non_smooth == []
        assert np.allclose(report.leaves[0].numeric.astype(float), x > 0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [-0.5, 1.5, np.nan])
def test_a_value_outside_the_kinks_slopes_is_not_hidden(value):
    with pytest.raises(ValueError, match="fail"):
        check_vjp(lambda x: np.sum(np.maximum(x, 0)), lambda g, x: np.where(x == 0, value, relu_vjp(g, x)), np.zeros(2))
