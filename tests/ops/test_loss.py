"""cross_entropy: reference values, ignored tokens, large and masked logits, targets that are not there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng

CASES = {name: case for name, case in reference("ops").items() if case["op"].startswith("cross_entropy")}
OTHER_CONVENTION = {
    "cross_entropy_sum": "the sum over tokens: ours times the number that count, tried below",
    "cross_entropy_none": "one loss for each token: minus log_softmax at the target, tried below",
    "cross_entropy_smoothing": "label smoothing: a mean of log_softmax, tried below",
    "cross_entropy_class_weights": "a weight for each class",
    "cross_entropy_all_ignored": "NaN for a mean of nothing, where ours is 0; tried below",
    "cross_entropy_all_ignored_sum": "a sum",
    "causal_lm_loss": "shifts the labels first, tried below",
}


def vjp(logits, targets, g=1.0, **options):
    out, pullback = ng.vjp(lambda logits: ng.cross_entropy(logits, targets, **options), logits)
    return out, pullback(np.asarray(g, out.dtype))[0]


def case_of(name):
    case = CASES[name]
    return case["in"]["logits"], case["in"]["labels"], case["params"]["ignore_index"], case["cot"]["y"], case


@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHER_CONVENTION.keys()))
def test_reference_values(name):
    logits, labels, ignored, g, case = case_of(name)
    out, gradient = vjp(logits, labels, g, ignore_index=ignored)
    rtol, atol = (1e-5, 1e-6) if logits.dtype == np.float32 else (1e-12, 1e-15)
    assert np.shape(out) == ()
    assert out.dtype == gradient.dtype == logits.dtype
    np.testing.assert_allclose(out, case["out"]["y"], rtol=rtol)
    np.testing.assert_allclose(gradient, case["grad"]["logits"], rtol=rtol, atol=atol)


def test_reference_values_of_a_sum():
    logits, labels, ignored, g, case = case_of("cross_entropy_sum")
    count = np.sum(labels != ignored)
    out, gradient = vjp(logits, labels, g * count, ignore_index=ignored)
    np.testing.assert_allclose(out * count, case["out"]["y"], rtol=1e-12)
    np.testing.assert_allclose(gradient, case["grad"]["logits"], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["cross_entropy_none", "cross_entropy_smoothing"])
def test_reference_values_of_losses_in_terms_of_log_softmax(name):
    logits, labels, ignored, g, case = case_of(name)
    counted, s = labels != ignored, case["params"].get("label_smoothing", 0)

    def loss(logits):
        log_p = ng.log_softmax(logits)
        picked = np.take_along_axis(log_p, np.where(counted, labels, 0)[..., None], -1)[..., 0]
        losses = np.where(counted, -(1 - s) * picked - s * np.mean(log_p, axis=-1), 0.0)
        return losses if name == "cross_entropy_none" else np.sum(losses) / np.sum(counted)

    out, pullback = ng.vjp(loss, logits)
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12)
    np.testing.assert_allclose(pullback(g)[0], case["grad"]["logits"], rtol=1e-12, atol=1e-15)


def test_reference_values_of_a_shifted_loss():
    logits, labels, ignored, g, case = case_of_shifted()
    out, pullback = ng.vjp(lambda z: ng.cross_entropy(z[:, :-1], labels[:, 1:], ignore_index=ignored), logits)
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12)
    np.testing.assert_allclose(pullback(g)[0], case["grad"]["logits"], rtol=1e-12, atol=1e-15)


def case_of_shifted():
    case = reference("ops")["causal_lm_loss"]
    return case["in"]["logits"], case["in"]["labels"], case["params"]["ignore_index"], case["cot"]["y"], case


def test_all_ignored_is_zero_with_a_zero_gradient():
    logits, labels, ignored, g, case = case_of("cross_entropy_all_ignored")
    out, gradient = vjp(logits, labels, g, ignore_index=ignored)
    assert out == 0
    np.testing.assert_array_equal(gradient, case["grad"]["logits"])  # zero at torch too
    for shape in ((0, 3), (2, 0, 3), (0, 0)):
        out, gradient = vjp(np.ones(shape), np.zeros(shape[:-1], int))
        assert out == 0
        assert gradient.shape == shape


def test_what_is_ignored_does_not_matter():
    logits = np.array([[0.0, 1.0], [np.nan, np.inf], [-np.inf, -np.inf]])
    out, gradient = vjp(logits, [1, 9, 9], ignore_index=9)
    np.testing.assert_allclose(out, np.log(1 + np.exp(-1)))
    np.testing.assert_array_equal(gradient[1:], 0)
    np.testing.assert_allclose(gradient[0].sum(), 0, atol=1e-15)


def test_infinite_logits():
    """A token that can't be had costs infinitely much; one whose rivals can't be had costs nothing."""
    logits = np.array([[-np.inf, 0.0, 1.0], [-np.inf, 2.0, -np.inf], [-np.inf] * 3])
    out, gradient = vjp(logits, [0, 1, 0])
    assert out == np.inf
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[1:], 0)
    assert vjp(logits[1:2], [1])[0] == 0
    for function in (ng.cross_entropy, ng.cross_entropy.reference):
        _, pullback = ng.vjp(lambda z, f=function: f(z, np.array([0, 1, 0])), logits)
        np.testing.assert_allclose(pullback(np.array(1.0))[0], gradient, rtol=1e-14)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 5), st.integers(1, 6), st.floats(-400, 400), st.sampled_from([1.0, 30.0, 500.0]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_fused_equals_reference(tokens, vocabulary, level, spread, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, tokens, vocabulary)) * spread + level
    targets = rng.integers(-1, vocabulary, size=(2, tokens))
    fast, gradient = vjp(logits, targets, 0.7, ignore_index=-1)
    plain, pullback = ng.vjp(lambda z: ng.cross_entropy.reference(z, targets, ignore_index=-1), logits)
    np.testing.assert_allclose(fast, plain, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, pullback(np.array(0.7))[0], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-13)
    np.testing.assert_allclose(vjp(logits + 100, targets, ignore_index=-1)[0], fast, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrong", [4, -1, -4])
def test_targets_out_of_range(wrong):
    with pytest.raises(IndexError, match=rf"targets for 4 logits must be in 0\.\.3, but {wrong} is among them"):
        ng.cross_entropy(np.ones((2, 4)), [0, wrong], ignore_index=-100)


def test_other_errors():
    with pytest.raises(ValueError, match=r"\(\.\.\., vocabulary\).*\(2, 4\) and \(3,\)"):
        ng.cross_entropy(np.ones((2, 4)), [0, 1, 2])
    with pytest.raises(TypeError, match="targets for 4 logits must be integers, not float64"):
        ng.cross_entropy(np.ones((2, 4)), [0.0, 1.0])


def test_many_tokens_in_half_precision():
    logits = np.zeros((30_000, 4), np.float16)
    out, pullback = ng.vjp(lambda x: ng.cross_entropy(x, np.zeros(30_000, int)), logits)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, np.log(4), rtol=1e-3)
    (g,) = pullback(np.float16(1))
    np.testing.assert_allclose(g[0], np.array([-3, 1, 1, 1]) / 4 / 30_000, rtol=1e-2)


def test_an_ignore_index_that_is_no_integer_is_refused():
    with pytest.raises(TypeError, match="ignore_index must be an integer, not 'a'"):
        ng.cross_entropy(np.zeros((2, 3)), [0, 1], ignore_index="a")


def test_targets_may_be_filled_again_before_the_sweep():
    logits, targets = np.random.default_rng(0).normal(size=(3, 4)), np.array([0, 1, 2])
    expected = vjp(logits, targets.copy())[1]
    _, pullback = ng.vjp(lambda z: ng.cross_entropy(z, targets), logits)
    targets[:] = 3
    np.testing.assert_array_equal(pullback(1.0)[0], expected)
