"""Values and gradients of 637 NumPy expressions, against JAX, PyTorch and HIPS autograd.

Where the libraries differ, or give NaN at a point that has a useful value, the tables say which convention is ours.
"""

import re

import numpy as np
import oracle
import pytest

import npgrad as ng

CASES = oracle.reference("numpy_functions")

FOLLOWED = {  # the libraries differ: whose gradient is ours
    "ties/max_axis_one": "jax",  # an even split among ties
    "ties/min_axis_one": "jax",
    "ties/fmax": "autograd",  # a half each to equal arguments
    "ties/fmin": "autograd",
    "ties/norm_inf": "torch",  # an even split among the largest magnitudes
    "ties/clip_at_bounds": "torch",  # the gradient passes at both bounds
    "edge/abs_0": "torch",  # 0
    "edge/norm_0": "torch",  # 0
    "edge/std_constant": "torch",  # 0
    "edge/sinc_0": "torch",  # 0, the limit
    "edge/abs_nan": "autograd",  # NaN: the sign of NaN is not known
    "edge/power_0_0": "torch",  # x**0 is constant in x; 0**y has slope 0 in y
    "edge/arctan2_0_0": "torch",  # 0
    "edge/maximum_nan": "jax",  # nothing, where the result is NaN
}

LOWER = {  # NumPy reads the lower triangle only, so the gradient is there too; the libraries symmetrise it
    "linalg/cholesky", "linalg/cholesky_batch", "linalg/eigvalsh",
}  # fmt: skip

OWN = {  # none of the libraries', for the reason given
    "edge/hypot_0_0": (
        "0 at the origin, as for norm",
        {"x": [0.0, -0.03457705483156161], "y": [0.0, -0.04610273977541547]},
    ),
    "edge/logaddexp_neg_inf": (
        "nothing flows into -inf, where the libraries have NaN",
        {"x": [0.0, 0.0, 0.37832191833717427], "y": [0.0, 0.9202774664303555, 0.0]},
    ),
    "edge/power_negative_base": (
        "no slope in the exponent of a negative base, where the libraries have NaN",
        {"x": [-6.586500124024714, -2.293305055521405, -0.1275501192869456], "y": [0.0, 0.0, 0.0]},
    ),
}


ABSENT = [  # functions that this NumPy, an older one, doesn't have
    name for name in CASES if not all(hasattr(np, f) for f in re.findall(r"np\.(\w+)", CASES[name]["params"]["expr"]))
]
REFUSED = ("shape/array", "shape/asarray")  # NumPy doesn't let these be intercepted, so they would leave the tape


def expected(case):
    name = case["name"]
    if name in OWN:
        return OWN[name][1]
    if "grad_lower" in case:  # NumPy reads one triangle: the derivative of what it computes
        return case["grad_lower"]
    if name in LOWER:
        return case["grad_lower"]
    return case[f"grad_{FOLLOWED[name]}"] if name in FOLLOWED else case["grad"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_leave_the_tape_is_an_error(name):
    x = ng.Tape().variable(CASES[name]["in"]["x"])
    with pytest.raises(TypeError, match=r"np\.stack"):
        eval(CASES[name]["params"]["expr"], {"np": np, "x": x})


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*REFUSED, *ABSENT)])
def test_value_and_gradient(name):
    case = CASES[name]
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if name.split("/")[0] != "float32" else {"rtol": 1e-5, "atol": 1e-6}
    tape = ng.Tape()
    inputs = {n: tape.variable(a) for n, a in case["in"].items()}
    with np.errstate(**{"all": "ignore"} if case["params"].get("nonfinite_grad") else {}):
        y = eval(case["params"]["expr"], {"np": np, **inputs, **case.get("const", {})})
        found = y if isinstance(y, (tuple, list)) else [y]
        assert len(found) == len(case["out"])
        for got, want in zip(found, case["out"].values()):
            np.testing.assert_allclose(ng.stop_gradient(got), want, **tolerance)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
        pairs = [(v, g) for v, g in zip(found, case["cot"].values()) if isinstance(v, ng.Variable)]
        gradients = tape.sweep([v for v, _ in pairs], [g for _, g in pairs], list(inputs.values()))
    for got, (n, want) in zip(gradients, expected(case).items(), strict=True):
        np.testing.assert_allclose(got, want, **tolerance, err_msg=n)
        assert (got.shape, got.dtype) == (inputs[n].shape, inputs[n].dtype)


def test_a_plain_result_is_where_the_reference_has_no_gradient():
    for name in ("ufunc/sign", "ufunc/floor", "ufunc/ceil", "ufunc/rint", "ufunc/trunc", "binary/floor_divide"):
        assert not any(np.any(g) for g in CASES[name]["grad"].values())


def test_the_tables_name_cases_that_need_them():
    for name in FOLLOWED:
        assert "grad" not in CASES[name]
    for name in LOWER:
        assert not np.array_equal(CASES[name]["grad"]["x"], CASES[name]["grad_lower"]["x"])
    for name, (reason, _) in OWN.items():
        assert reason
        assert CASES[name]["params"]["nonfinite_grad"]
