"""The laws that every primitive of the decoder obeys, on the examples that are declared once for the audit too."""

import numpy as np
import pytest
from oracle import differences

import npgrad as ng
from npgrad import ops
from npgrad.check import EXAMPLES, examples_ops  # noqa: F401  (declares the examples)
from npgrad.fused import Fused

FUNCTIONS = (
    ops.attention, ops.causal_mask, ops.cross_entropy, ops.embedding, ops.gelu, ops.layer_norm, ops.linear,
    ops.log_softmax, ops.logsumexp, ops.rms_norm, ops.sigmoid, ops.silu, ops.softmax, ops.swiglu,
)  # fmt: skip
CASES = [pytest.param(e, id=f"{f}-{i}") for f in FUNCTIONS for i, e in enumerate(EXAMPLES[f])]
FUSED = [case for case in CASES if isinstance(case.values[0].function, Fused)]


def call(example, function=None):
    """The example's function of its arguments alone."""
    return lambda *args: (function or example.function)(*args, **example.kwargs)


def like(x, seed=0):
    """Random numbers of x's shape and dtype: a cotangent or a tangent."""
    x = np.asarray(x)
    return np.random.default_rng([seed, x.size]).normal(size=x.shape).astype(x.dtype)


def floats(example):
    return [i for i, a in enumerate(example.args) if np.asarray(a).dtype.kind == "f"]


def finite_part(x):
    return np.where(np.isfinite(x), x, 0)  # differences of causal_mask's -inf are not numbers


@pytest.mark.parametrize("example", CASES)
def test_gradient_equals_differences_at_every_coordinate(example):
    out, pullback = ng.vjp(call(example), *example.args)
    g = like(out)
    numeric = differences(lambda *args: finite_part(call(example)(*args)), example.args, g)
    for found, expected in zip(pullback(g), numeric):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("example", CASES)
def test_second_order_equals_differences_of_the_gradient(example):
    """grad of grad: the inner tape's values are Variables, so that the references run."""
    chosen = floats(example)
    g = like(finite_part(call(example)(*example.args)))
    u = [like(example.args[i], seed=1) for i in chosen]

    def slope(*args):
        def value(*args):
            out = call(example)(*args)
            return np.sum(g * np.where(np.isfinite(ng.stop_gradient(out)), out, 0) ** 2)

        gradients = ng.grad(value, chosen)(*args)
        return sum(np.sum(w * found) for w, found in zip(u, gradients))

    numeric = differences(slope, example.args)
    for i, found in zip(chosen, ng.grad(slope, chosen)(*example.args)):
        np.testing.assert_allclose(found, numeric[i], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("example", CASES)
def test_directional_derivative_is_the_adjoint_of_the_pullback(example):
    """⟨g, J ẋ⟩ = ⟨Jᵀ g, ẋ⟩; J ẋ comes from differentiating the pullback, where a fused one falls back too."""
    out, pullback = ng.vjp(call(example), *example.args)
    g = like(out)
    chosen = floats(example)
    tangents = [like(example.args[i], seed=2) for i in chosen]

    def of_floats(*found):
        args = dict(zip(chosen, found))
        return call(example)(*(args.get(i, a) for i, a in enumerate(example.args)))

    _, tangent = ng.jvp(of_floats, tuple(example.args[i] for i in chosen), tuple(tangents))
    gradients = pullback(g)
    right = sum(np.sum(gradients[i] * t) for i, t in zip(chosen, tangents))
    np.testing.assert_allclose(np.sum(g * tangent), right, rtol=1e-10, atol=1e-10)
    moved = ([example.args[i] + h * t for i, t in zip(chosen, tangents)] for h in (1e-6, -1e-6))
    ends = [np.sum(g * finite_part(of_floats(*args))) for args in moved]
    np.testing.assert_allclose(right, (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("example", FUSED)
def test_fused_equals_reference(example):
    fast, fast_pullback = ng.vjp(call(example), *example.args)
    plain, plain_pullback = ng.vjp(call(example, example.function.reference), *example.args)
    np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-13)
    g = like(fast)
    for found, expected in zip(fast_pullback(g), plain_pullback(g)):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("example", CASES)
def test_off_the_tape_the_value_is_the_same(example):
    recorded, _ = ng.vjp(call(example), *example.args)
    np.testing.assert_array_equal(call(example)(*example.args), recorded)


@pytest.mark.parametrize("example", CASES)
def test_float32_stays_float32(example):
    narrow = [np.asarray(a, np.float32) if np.asarray(a).dtype.kind == "f" else a for a in example.args]
    out, pullback = ng.vjp(call(example), *narrow)
    wide, wide_pullback = ng.vjp(call(example), *example.args)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, wide, rtol=1e-4, atol=1e-5)
    for found, expected in zip(pullback(like(out)), wide_pullback(like(out).astype(float))):
        if expected is not None:
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


LAYOUTS = {
    "transposed in memory": lambda a: np.asfortranarray(a),
    "every second column": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "negative strides": lambda a: np.flip(np.flip(a).copy()),
    "negative stride of rows": lambda a: np.flip(np.flip(a, 0).copy(), 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("example", CASES)
def test_memory_layout_changes_nothing(example, layout):
    def arranged(a):
        if np.ndim(a) == 0:
            return a
        a = LAYOUTS[layout](np.asarray(a))
        a.flags.writeable = False
        return a

    args = [arranged(a) for a in example.args]
    out, pullback = ng.vjp(call(example), *args)
    expected, expected_pullback = ng.vjp(call(example), *example.args)
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14)
    g = like(expected)
    for found, right in zip(pullback(arranged(g)), expected_pullback(g)):
        if right is not None:
            np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("example", CASES)
def test_pullback_is_linear_repeatable_and_changes_nothing(example):
    args = [np.copy(a) for a in example.args]
    out, pullback = ng.vjp(call(example), *args)
    kept = np.copy(out)
    g, h = like(out), like(out, seed=1)
    first, second, both, again = pullback(g), pullback(h), pullback(2 * g - 3 * h), pullback(g)
    for a, b, c, d in zip(first, second, both, again):
        if a is not None:
            np.testing.assert_allclose(2 * a - 3 * b, c, rtol=1e-10, atol=1e-10)
            np.testing.assert_array_equal(a, d)
            assert not np.shares_memory(a, d)
    np.testing.assert_array_equal(out, kept)
    np.testing.assert_array_equal(g, like(out))
    for a, b in zip(args, example.args):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("example", CASES)
def test_tape_names_the_primitive(example):
    tape = ng.Tape()
    args = [tape.variable(a) if np.asarray(a).dtype.kind == "f" else a for a in example.args]
    call(example)(*args)
    assert tape.records[-1].primitive is example.function
    assert str(tape.records[-1].primitive) in ops.__all__


@pytest.mark.parametrize("example", [case for case in CASES if len(floats(case.values[0])) > 1])
def test_of_several_precisions_the_highest_has_its_way(example):
    for wide in floats(example):
        args = [np.asarray(a, np.float32) if i in floats(example) else a for i, a in enumerate(example.args)]
        args[wide] = args[wide].astype(float)
        out, pullback = ng.vjp(call(example), *args)
        assert out.dtype == float
        assert [g.dtype for g in pullback(like(out)) if g is not None] == [args[i].dtype for i in floats(example)]
