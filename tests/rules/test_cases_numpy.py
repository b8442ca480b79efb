"""Bugs that others reported in arithmetic, reductions, indexing and graphs, tried here."""

import numpy as np
import pytest
from data import cases

import npgrad as ng

FAULTS = (
    "graph-order", "graph-memory", "broadcast", "empty", "axis", "scatter", "einsum", "nondiff-point", "power", "dtype",
)  # fmt: skip
CASES = {run.__name__: run() for run in cases.REGISTRY if run.fault in FAULTS} | {
    "mask_where_untaken_branch": cases.mask_where_untaken_branch()
}


def norm(x, axis):
    return np.linalg.norm(x, axis=axis)


def softmax(x, axis):
    return ng.softmax(x, axis)


PROGRAMS = {  # by the words of the case, the same in npgrad
    "b = a + a; out = b + b": lambda a: (a + a) + (a + a),
    "c = a + b; e = a * b; out = (c + e) + c * e": lambda a, b: (a + b + a * b) + (a + b) * (a * b),
    "matmul(x, x)": lambda x: x @ x,
    "sum(x) + sum(c * x)": lambda x, c: np.sum(x) + np.sum(c * x),
    "sum(x + x)": lambda x: np.sum(x + x),
    "multiply with broadcasting": lambda v, c: c * v,
    "matmul(a, b)": lambda a, b: a @ b,
    "matmul(b, a)": lambda a, b: b @ a,
    "matmul(b, b)": lambda b: b @ b,
    "sum(a + b)": lambda a, b: np.sum(a + b),
    "softmax": softmax,
    "mean": lambda x, axis, keepdims: np.mean(x, axis=axis, keepdims=keepdims),
    "sum": lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims),
    "x - mean(x)": lambda x: x - np.mean(x),
    "integer-array indexing": lambda x, index: x[index],
    "einsum ii->": lambda x: np.einsum("ii->", x),
    "einsum ii->i": lambda x: np.einsum("ii->i", x),
    "sqrt(sum(x * x)) as one norm operation": norm,
    "norm(x) ** 2": lambda x, axis: norm(x, axis) ** 2,
    "sum(x * x)": lambda x, axis=None: np.sum(x * x, axis=axis),
    "var": np.var,
    "std": np.std,
    "max over an axis": np.max,
    "elementwise maximum(a, b)": np.maximum,
    "clip to [0, 1]": lambda x, low, high: np.clip(x, low, high),
    "a ** b": lambda a, b: a**b,
    "product over axis 1": lambda x, axis: np.prod(x, axis=axis),
    "where(a <= 0, exp(a), 1 + a)": lambda a: np.where(a <= 0, np.exp(np.where(a <= 0, a, 0)), 1 + a),
    "where(x > 0, sqrt(x), 0)": lambda x: np.where(x > 0, np.sqrt(np.where(x > 0, x, 1)), 0),
    "where(x > 0, sqrt(where(x > 0, x, 1)), 0)": lambda x: np.where(x > 0, np.sqrt(np.where(x > 0, x, 1)), 0),
    "sum(x ** 2)": lambda x: np.sum(x**2),
    "sum(x * 2.0)": lambda x: np.sum(x * 2.0),
    "mean(x)": np.mean,
}
ELSEWHERE = ("graph_backward_twice", "graph_data_changed_after_forward", "dtype_integer_input")  # not one sweep: below


STEPS = [
    pytest.param({**case, **step}, id=f"{name}{i}")
    for name, case in CASES.items()
    if name not in ELSEWHERE
    for i, step in enumerate(cases.steps_of(case))
]


def run(step):
    """The output, the gradients by name, and copies of what was given, taken before."""
    tape = ng.Tape()
    inputs = {n: tape.variable(a) if np.asarray(a).dtype.kind == "f" else a for n, a in step["inputs"].items()}
    out = PROGRAMS[step["kind"]](*inputs.values(), **step.get("params", {}))
    variables = {n: v for n, v in inputs.items() if isinstance(v, ng.Variable)}
    gradients = tape.gradient(out, list(variables.values()), step["cotangent"]["out"])
    return out.value, dict(zip(variables, gradients))


@pytest.mark.parametrize("step", STEPS)
def test_a_case_is_right(step):
    out, gradients = run(step)
    tolerance = {"rtol": step["rtol"], "atol": step["atol"]}
    if "expected" in step:
        np.testing.assert_allclose(out, np.asarray(step["expected"]["out"], float), **tolerance)
    accepted = [step["expected_grads"]] if "expected_grads" in step else []
    accepted += [other["expected_grads"] for other in step["accept"]]
    assert any(
        all(
            gradients[n].shape == np.shape(want) and np.allclose(gradients[n], np.asarray(want, float), **tolerance)
            for n, want in grads.items()
        )
        for grads in accepted
    ), gradients
    for n, g in gradients.items():
        assert g.dtype == step["inputs"][n].dtype


@pytest.mark.parametrize("step", STEPS)
def test_a_case_leaves_its_inputs_alone(step):
    given = [*step["inputs"].values(), step["cotangent"]["out"]]
    before = [np.copy(a) for a in given]
    for a in given:
        np.asarray(a).flags.writeable = False
    _, gradients = run(step)
    for a, b in zip(given, before):
        np.testing.assert_array_equal(a, b)
    for g in gradients.values():
        assert not any(np.shares_memory(g, a) for a in given)
        assert g.flags.writeable


def test_the_untaken_branch_needs_the_double_where():
    """The plain form is NaN, here as in every library that multiplies by slopes; the README shows the double one."""
    with np.errstate(all="ignore"):
        assert np.isnan(ng.grad(lambda x: np.where(x > 0, np.sqrt(x), 0))(np.array(0.0)))
    assert ng.grad(PROGRAMS["where(x > 0, sqrt(x), 0)"])(np.array(0.0)) == 0


def test_graph_backward_twice():
    case = CASES["graph_backward_twice"]
    tape = ng.Tape()
    a, b, d = (tape.variable(case["inputs"][n]) for n in "abd")
    e = (a + b) * d
    once = next(other for other in case["accept"] if other["why"] == "replaced on each call")["expected_grads"]
    for _ in range(2):
        for g, n in zip(tape.gradient(e, [a, b, d], retain=True), "abd"):
            assert g == once[n]
    tape.gradient(e, [a, b, d])
    with pytest.raises(ng.ReleasedTapeError):
        tape.gradient(e, [a, b, d])


def test_graph_data_changed_after_forward():
    case = CASES["graph_data_changed_after_forward"]
    x = case["inputs"]["x"].copy()
    with ng.debug():
        tape = ng.Tape()
    v = tape.variable(x)
    y = np.sum(v * v)
    x[:] = case["params"]["overwrite_with"]
    with pytest.raises(ng.DebugError, match="changed"):
        tape.gradient(y, [v])


def test_dtype_integer_input():
    for step in CASES["dtype_integer_input"]["steps"]:
        with pytest.raises(TypeError, match=r"int64.*float"):
            ng.grad(lambda x: np.sum(x * 0.5))(step["inputs"]["x"])
        f = {"sum(x * 0.5)": lambda x: np.sum(x * 0.5), "sum(1 / x)": lambda x: np.sum(1 / x)}[step["kind"]]
        np.testing.assert_allclose(ng.grad(f)(step["inputs"]["x"].astype(float)), step["expected_grads"]["x"])


def test_every_case_is_tried():
    assert len(CASES) == 22
    for name, case in CASES.items():
        assert name in ELSEWHERE or all(step.get("kind", case["kind"]) in PROGRAMS for step in cases.steps_of(case))
