"""Bugs that others reported in softmax, masks, losses, norms, attention, activations and embeddings, tried here."""

import warnings

import numpy as np
import pytest
from data import cases

import npgrad as ng

FAULTS = ("mask", "softmax", "loss", "rmsnorm", "attention", "kv-cache", "activation", "tied-weights")
CASES = {run.__name__: run() for run in cases.REGISTRY if run.fault in FAULTS}


def loss(case, step):
    ignored = {**case["params"], **step.get("params", {})}.get("ignored_label")
    return lambda logits: ng.cross_entropy(logits, step["inputs"]["labels"], ignore_index=ignored)


def heads_first(q, k, v):
    return ng.attention(q, k, v)


def without_heads(q, k, v):
    return ng.attention(q[None], k[None], v[None])[0]


# What each case's operation is here: from the case and the step to a function of the differentiated inputs.
OPERATIONS = {
    "mask_fully_masked_row": lambda case, step: lambda x: ng.softmax(np.where(step["inputs"]["keep"], x, -np.inf)),
    "softmax_logsumexp_infinite": lambda case, step: ng.logsumexp,
    "softmax_log_backward": lambda case, step: ng.log_softmax,
    "softmax_large_logits": loss,
    "loss_no_counted_token": loss,
    "loss_label_out_of_range": loss,
    "loss_mean_of_means": loss,
    "rmsnorm_epsilon_place": lambda case, step: lambda x, weight: ng.rms_norm(x, weight, eps=case["params"]["eps"]),
    "rmsnorm_weight_gradient": lambda case, step: lambda x, weight: ng.rms_norm(x, weight, eps=case["params"]["eps"]),
    "attention_scale": lambda case, step: heads_first,
    "attention_grouped_backward": lambda case, step: heads_first,
    "cache_prefill_without_mask": lambda case, step: without_heads,
    "activation_sigmoid_extremes": lambda case, step: ng.sigmoid,
    "tied_embedding_gradient": lambda case, step: lambda E: ng.embedding(E, case["params"]["tokens"]) @ E.T,
}
OWN_TESTS = {"mask_where_untaken_branch", "rmsnorm_with_residual"}  # and splits of loss_mean_of_means
STEPS = [pytest.param(CASES[n], s, id=f"{n}-{i}") for n in OPERATIONS for i, s in enumerate(cases.steps_of(CASES[n]))]


def test_all_of_them_are_tried():
    assert set(CASES) == OPERATIONS.keys() | OWN_TESTS


def right_answers(step):
    """The values and gradients that count as right: the first that a step names, or those it accepts."""
    if step["behaviour"] == "one_of":
        return [{**step, **accepted} for accepted in step["accept"]]
    return [step]


def agrees(case, out, gradients, answer):
    tolerance = {"rtol": case["rtol"], "atol": case["atol"]}
    expected = [*answer.get("expected", {}).values()]
    return all(np.allclose(out, np.asarray(e, float), **tolerance) for e in expected) and all(
        np.allclose(gradients[n], np.asarray(g, float), **tolerance)
        for n, g in answer.get("expected_grads", {}).items()
    )


@pytest.mark.parametrize(("case", "step"), STEPS)
def test_reported_bug(case, step):
    step = {"behaviour": case["behaviour"], "accept": case["accept"], **step}
    function = OPERATIONS[next(name for name in OPERATIONS if CASES[name]["id"] == case["id"])](case, step)
    inputs = {n: np.array(a) for n, a in step["inputs"].items() if np.asarray(a).dtype.kind == "f"}
    if step["behaviour"] == "error":
        with pytest.raises((ValueError, TypeError, IndexError)) as error:
            function(*inputs.values())
        assert any(word.lower() in str(error.value).lower() for word in step["error_names"])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, pullback = ng.vjp(function, *inputs.values())
        cotangent = next(iter(step["cotangent"].values())) if "cotangent" in step else np.ones_like(out)
        kept = np.copy(cotangent)
        gradients = dict(zip(inputs, pullback(cotangent)))
    assert any(agrees(case, out, gradients, answer) for answer in right_answers(step))
    for faulty in {**case["wrong"], **step.get("wrong", {})}.values():  # and it can be told from the faults
        for at, array in faulty.items():
            found = out if at.startswith("out") else gradients.get(at.split(":")[1])
            assert found is None or not np.allclose(found, np.asarray(array, float), rtol=1e-6, equal_nan=True)
    np.testing.assert_array_equal(cotangent, kept)
    for n, a in inputs.items():
        np.testing.assert_array_equal(a, step["inputs"][n])


def test_mean_over_all_tokens_from_parts_of_a_batch():
    """The loss is a mean; parts of a batch are put together by their counts of tokens."""
    case = CASES["loss_mean_of_means"]
    logits, labels = case["inputs"]["logits"], case["inputs"]["labels"]
    split = np.cumsum(case["params"]["split"])[:-1]

    def whole(logits):
        parts = zip(np.split(logits, split), np.split(labels, split))
        return sum(ng.cross_entropy(z, y) * len(y) for z, y in parts) / len(labels)

    out, gradient = ng.value_and_grad(whole)(logits)
    assert agrees(case, out, {"logits": gradient}, case)


def test_norm_beside_a_residual():
    case = CASES["rmsnorm_with_residual"]
    c, d = (case["cotangent"][n] for n in "yh")

    def block(r, x, weight):
        h = r + x
        return {"y": ng.rms_norm(h, weight, eps=case["params"]["eps"]), "h": h}

    out, pullback = ng.vjp(block, *(case["inputs"][n] for n in ("r", "x", "weight")))
    for n in "yh":
        np.testing.assert_allclose(out[n], np.asarray(case["expected"][n], float), rtol=case["rtol"])
    for n, found in zip(("r", "x", "weight"), pullback({"y": c, "h": d})):
        np.testing.assert_allclose(
            found, np.asarray(case["expected_grads"][n], float), rtol=case["rtol"], atol=case["atol"]
        )


def test_the_branch_not_taken():
    """0 times an infinite slope is NaN in the branch not taken: the way round is a harmless input there."""
    safe = CASES["mask_where_untaken_branch"]["steps"][2]
    x = safe["inputs"]["x"]
    out, gradient = ng.value_and_grad(lambda x: np.sum(np.where(x > 0, np.sqrt(np.where(x > 0, x, 1.0)), 0.0)))(x)
    assert out == safe["expected"]["out"].sum()
    np.testing.assert_array_equal(gradient, safe["expected_grads"]["x"])
    step = CASES["mask_where_untaken_branch"]["steps"][0]
    a = step["inputs"]["a"]
    harmless = ng.value_and_grad(lambda a: np.where(a <= 0, np.exp(np.where(a <= 0, a, 0.0)), 1 + a))(a)
    assert harmless == (step["expected"]["out"], step["expected_grads"]["a"])
