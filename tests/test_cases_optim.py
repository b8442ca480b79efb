"""Bugs that others reported in optimisers and clipping, tried here."""

import io

import numpy as np
import pytest
from data import cases

from npgrad import optim

CASES = {run.__name__: run() for run in cases.REGISTRY if run.fault in ("optimiser", "clipping")}


def test_all_of_them_are_tried():
    assert set(CASES) == {"adamw_three_steps", "adamw_step_counter_per_step", "adamw_resume", "clip_non_finite"}


def adamw(case, params):
    options = {name: CASES[case]["params"][name] for name in ("betas", "eps", "weight_decay")}
    return optim.AdamW(params, CASES[case]["params"]["lr"], **options)


def close(case, found, expected):
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=CASES[case]["rtol"], atol=CASES[case]["atol"])


def test_adamw_three_steps():
    given, expected = CASES["adamw_three_steps"]["inputs"], CASES["adamw_three_steps"]["expected"]
    optimiser = adamw("adamw_three_steps", given["p"])
    for g, name in zip(given["grads"], ("p_after_1", "p_after_2", "p")):
        close("adamw_three_steps", optimiser.update(g), expected[name])


def test_adamw_counts_steps_not_parameters():
    given, expected = (CASES["adamw_step_counter_per_step"][role] for role in ("inputs", "expected"))
    optimiser = adamw("adamw_step_counter_per_step", {"p1": given["p1"], "p2": given["p2"]})
    for g in given["grads"]:
        params = optimiser.update({"p1": g, "p2": g})
    for name in ("p1", "p2"):
        close("adamw_step_counter_per_step", params[name], expected[name])


def test_adamw_resumes_with_its_moments_and_count():
    given = CASES["adamw_resume"]["inputs"]
    first = adamw("adamw_resume", given["p"])
    for g in given["grads"][:2]:
        first.update(g)
    file = io.BytesIO()
    np.savez(file, **first.state())
    file.seek(0)
    second = adamw("adamw_resume", np.zeros(2))
    with np.load(file) as saved:
        second.restore(dict(saved))
    close("adamw_resume", second.update(given["grads"][2]), CASES["adamw_resume"]["expected"]["p"])


@pytest.mark.parametrize("step", CASES["clip_non_finite"]["steps"])
def test_clipping_looks_at_the_norm_first(step):
    gradients = {name: g.copy() for name, g in step["inputs"].items()}
    if step["behaviour"] == "error":
        with pytest.raises(ValueError, match="finite"):
            optim.clip_by_global_norm(gradients, step["params"]["max_norm"])
        for name, g in step["inputs"].items():
            np.testing.assert_array_equal(gradients[name], g)
        return
    clipped, norm = optim.clip_by_global_norm(gradients, step["params"]["max_norm"])
    for name, found in {**clipped, "norm": norm}.items():
        np.testing.assert_allclose(found, step["expected"][name], rtol=step["rtol"])
