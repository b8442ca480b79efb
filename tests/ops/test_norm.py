"""rms_norm and layer_norm: reference values, scale, small and empty rows, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng

CASES = {name: case for name, case in reference("ops").items() if case["op"] in ("rms_norm", "layer_norm")}
OTHER_CONVENTION = {"layer_norm_two_axes"}  # normalises (tokens, width) together: reshape them to one axis, as below


def arguments(case):
    """x, weight and bias as our functions take them: a missing weight is 1, Gemma's is 1 + weight."""
    x = case["in"]["x"]
    weight = case["in"].get("weight", np.ones(x.shape[-1])) + case["params"].get("weight_offset", 0)
    bias = (case["in"].get("bias", np.zeros(x.shape[-1])),) if case["op"] == "layer_norm" else ()
    return (x, weight, *bias)


@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHER_CONVENTION))
def test_reference_values(name):
    case = CASES[name]
    function = getattr(ng, case["op"])
    out, pullback = ng.vjp(lambda *args: function(*args, eps=case["params"]["eps"]), *arguments(case))
    narrow = case["params"]["dtype"] == "float32"
    rtol, atol = (1e-5, 1e-5) if narrow else (1e-9, 1e-9) if "large_mean" in name else (1e-12, 1e-13)
    np.testing.assert_allclose(out, case["out"]["y"], rtol=rtol, atol=atol)
    for argument, found in zip(("x", "weight", "bias"), pullback(case["cot"]["y"])):
        if argument in case["grad"]:
            np.testing.assert_allclose(found, case["grad"][argument], rtol=rtol, atol=atol)


def test_layer_norm_over_two_axes_is_layer_norm_of_one_long_axis():
    case = CASES["layer_norm_two_axes"]
    flat = [np.reshape(case["in"][n], s) for n, s in (("x", (2, 18)), ("weight", 18), ("bias", 18))]
    out, pullback = ng.vjp(lambda *args: ng.layer_norm(*args, eps=case["params"]["eps"]), *flat)
    np.testing.assert_allclose(out, case["out"]["y"].reshape(2, 18), rtol=1e-12, atol=1e-13)
    for argument, found in zip(("x", "weight", "bias"), pullback(case["cot"]["y"].reshape(2, 18))):
        np.testing.assert_allclose(found.ravel(), case["grad"][argument].ravel(), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_fused_equals_reference(shape, seed):
    rng = np.random.default_rng(seed)
    x, weight, bias, g = (rng.normal(size=s) for s in (shape, shape[-1:], shape[-1:], shape))
    for function, args in ((ng.rms_norm, (x, weight)), (ng.layer_norm, (x, weight, bias))):
        (fast, pullback), (plain, plain_pullback) = ng.vjp(function, *args), ng.vjp(function.reference, *args)
        np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)
        for found, expected in zip(pullback(g), plain_pullback(g)):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.1, 1e3), st.integers(0, 2**32 - 1))
def test_scale_and_shift_change_nothing(factor, seed):
    x = np.random.default_rng(seed).normal(size=(2, 5))
    ones, zeros = np.ones(5), np.zeros(5)
    np.testing.assert_allclose(ng.rms_norm(x * factor, ones, eps=0.0), ng.rms_norm(x, ones, eps=0.0), rtol=1e-10)
    found = ng.layer_norm(x * factor + 3, ones, zeros, eps=0.0)
    np.testing.assert_allclose(found, ng.layer_norm(x, ones, zeros, eps=0.0), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(np.mean(ng.rms_norm(x, ones, eps=0.0) ** 2, -1), 1, rtol=1e-12)


def test_mixed_precisions_give_the_higher_and_gradients_their_own():
    x, weight = np.ones((2, 3), np.float32), np.arange(3.0)
    out, pullback = ng.vjp(ng.rms_norm, x, weight)
    assert out.dtype == np.float64
    assert [d.dtype for d in pullback(np.ones((2, 3)))] == [np.float32, np.float64]


def test_errors():
    with pytest.raises(ValueError, match=r"weight of shape \(width,\), but they have shapes \(2, 3\) and \(2,\)"):
        ng.rms_norm(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match=r"bias of shape \(width,\).*\(1, 3\)"):
        ng.layer_norm(np.ones((2, 3)), np.ones(3), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"shape \(\.\.\., width\)"):
        ng.rms_norm(1.0, 1.0)


def test_half_precision_is_computed_in_single():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(3, 512)) * 300).astype(np.float16)
    w, b, g = (rng.normal(size=s).astype(np.float16) for s in (512, 512, x.shape))
    for function, args in ((ng.rms_norm, (x, w)), (ng.layer_norm, (x, w, b))):
        for form in (function, function.reference):
            out, pullback = ng.vjp(form, *args)
            exact, exact_pullback = ng.vjp(function, *(a.astype(float) for a in args))
            assert out.dtype == np.float16
            np.testing.assert_allclose(out, exact, rtol=2e-3, atol=2e-3)
            for got, want in zip(pullback(g), exact_pullback(g.astype(float)), strict=True):
                assert got.dtype == np.float16
                np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3)


def test_what_is_no_setting_is_refused():
    with pytest.raises(ValueError, match="rms_norm needs eps of 0 or more, not -5"):
        ng.rms_norm(np.ones(2), np.ones(2), eps=-5)
    with pytest.raises(ValueError, match="layer_norm needs eps of 0 or more, not nan"):
        ng.layer_norm(np.ones(2), np.ones(2), np.ones(2), eps=np.nan)
    with pytest.raises(TypeError, match="expected an array of real numbers, not None"):
        ng.layer_norm(np.ones(2), np.ones(2), None)


def test_second_derivatives_of_float16_beside_a_wider_weight():
    """They are the reference's, which squares 500 too: more than float16 holds."""
    x, weight = np.array([300.0, -500.0, 20.0], np.float16), np.array([1.0, 2.0, 3.0], np.float32)
    (got,) = ng.hvp(lambda w: np.sum(np.sin(ng.rms_norm(x, w))), (weight,), (np.ones_like(weight),))
    wide = weight.astype(float)
    (want,) = ng.hvp(lambda w: np.sum(np.sin(ng.rms_norm(x.astype(float), w))), (wide,), (np.ones_like(wide),))
    np.testing.assert_allclose(got, want, rtol=1e-4)
