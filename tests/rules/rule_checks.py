"""What is held true of every example of a rule: value, first and second derivative, float32 from end to end."""

import numpy as np
import oracle
import pytest

import npgrad as ng
from npgrad import tree
from npgrad.check import EXAMPLES, examples_arrays, examples_elementwise  # noqa: F401  (declares its examples)
from npgrad.rules.statistics import binned
from npgrad.variable import REGISTRY

RTOL, ATOL = 1e-8, 1e-9
DOUBLE_ONLY = (np.interp, np.bincount, binned)  # they refuse long double


def home(function):
    """The module that says how a function differentiates."""
    if type(function).__module__ == "builtins" and isinstance(getattr(function, "__self__", None), np.ufunc):
        function = (function.__self__, function.__name__)
    implementation = REGISTRY.get(function, function)
    rules = getattr(implementation, "rules", ())
    rules = [rules.rule] if hasattr(rules, "rule") else [rule for rule in rules[:3] if rule is not None]
    return (rules or [implementation])[0].__module__


def examples(module):
    """The declared examples of the functions whose rules are in npgrad/rules/`module`.py, as parameters of a test."""
    return [
        pytest.param(example, id=f"{getattr(function, '__name__', function)}{i}")
        for function, declared in EXAMPLES.items()
        if home(function) in (f"npgrad.rules.{module}", f"_{module}")
        for i, example in enumerate(declared)
    ]


def flat(example):
    """The example as a function of its float arrays to a list of those results that depend on them; the arrays."""
    leaves = tree.leaves(list(example.args))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"]

    def function(*arrays):
        filled = [*leaves]
        for i, a in zip(places, arrays):
            filled[i] = a
        return example.function(*tree.unflatten(list(example.args), filled), **example.kwargs)

    def differentiable(*arrays):
        return [y for y, keep in zip(tree.leaves(function(*arrays)), on_tape) if keep]

    arrays = [leaves[i] for i in places]
    tape = ng.Tape()
    on_tape = [isinstance(y, ng.Variable) for y in tree.leaves(function(*map(tape.variable, arrays)))]
    return differentiable, function, arrays


def signed(shape, seed):
    """A cotangent without zeros or symmetry."""
    random = np.random.default_rng(seed)
    return random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)


def weighted(function, seed=0):
    """The scalar sum of each result times a fixed cotangent."""

    def total(*arrays):
        return sum(np.sum(signed(np.shape(y), [seed, i]) * y) for i, y in enumerate(function(*arrays)))

    return total


def gradients(total, arrays):
    return ng.grad(total, argnums=tuple(range(len(arrays))))(*arrays)


def differences(example, total, arrays):
    if example.function in DOUBLE_ONLY or home(example.function) == "npgrad.rules.linalg":  # LAPACK has no long double
        return oracle.differences(lambda *wide: total(*(a.astype(float) for a in wide)), arrays)
    return oracle.differences(total, arrays)


def check_value(example):
    _, function, arrays = flat(example)
    tape = ng.Tape()
    got, want = tree.leaves(function(*map(tape.variable, arrays))), tree.leaves(function(*arrays))
    assert any(isinstance(y, ng.Variable) for y in got)
    for y, w in zip(got, want, strict=True):
        y = ng.stop_gradient(y)
        np.testing.assert_allclose(y, w, rtol=1e-12, atol=1e-13)
        assert np.shape(y) == np.shape(w)
        assert np.asarray(y).dtype == np.asarray(w).dtype


def check_first(example):
    function, _, arrays = flat(example)
    total = weighted(function)
    for got, want in zip(gradients(total, arrays), differences(example, total, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=RTOL, atol=ATOL)


def check_second(example):
    function, _, arrays = flat(example)
    total = weighted(function)
    slope = weighted(lambda *arrays: gradients(total, arrays), seed=1)
    for got, want in zip(gradients(slope, arrays), differences(example, slope, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=RTOL, atol=ATOL)


def check_float32(example):
    """NumPy's dtype for the value, float32 gradients near the float64 ones, and no pullback that leaves float32."""
    _, function, arrays = flat(example)
    narrow = [a.astype(np.float32) for a in arrays]
    tape = ng.Tape()
    inputs = [tape.variable(a) for a in narrow]
    got, want = tree.leaves(function(*inputs)), tree.leaves(function(*narrow))
    for y, w in zip(got, want, strict=True):
        assert np.asarray(ng.stop_gradient(y)).dtype == np.asarray(w).dtype
    on = [y for y in got if isinstance(y, ng.Variable)]
    for record in tape.records:
        pullbacks = record.pullbacks if isinstance(record.pullbacks, tuple) else ()
        for pullback in pullbacks:
            found = pullback(np.ones(record.shape, record.dtype))
            assert found.dtype == record.dtype, f"{record.primitive} leaves {record.dtype} for {found.dtype}"
    cotangents = [signed(y.shape, [0, i]).astype(y.dtype) for i, y in enumerate(on)]
    exact = gradients(weighted(flat(example)[0]), [a.astype(float) for a in narrow])
    for g, w in zip(tape.sweep(on, cotangents, inputs), exact, strict=True):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-4)


CHECKS = (check_value, check_first, check_second, check_float32)
