"""Optimisers, clipping and schedules against trajectories of other libraries, and their promises."""

import copy
import io
import itertools
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng
from npgrad import optim

CASES = reference("optim")

NOT_HERE = {
    "adam_l2": "decay mixed into Adam's gradient: AdamW replaced it",
    "adamw_amsgrad": "the AMSGrad variant",
    "sgd_maximize": "ascent: negate the loss",
    "clip_inf_norm": "clipping by the maximum norm: clip_by_value limits single elements",
    "clip_l1": "clipping by the 1-norm",
    "clip_nan": "a non-finite norm is an error",
    "clip_infinite": "a non-finite norm is an error",
    "step": "a staircase schedule: any function of the step is a schedule",
}

SGD_CASES = [
    "sgd", "sgd_weight_decay", "sgd_momentum", "sgd_momentum_decay", "sgd_dampening", "sgd_nesterov",
    "sgd_linear_warmup",
]  # fmt: skip
ADAMW_CASES = [
    "adam", "adamw_default", "adamw", "adamw_no_decay", "adamw_large_eps", "adamw_beta1_zero", "adamw_groups",
    "adamw_missing_grad", "adamw_zero_grad", "adamw_cosine_warmup",
]  # fmt: skip
LOOPS = ["train_adamw_clip_cosine", "train_sgd_momentum"]
SCHEDULES = {
    "cosine_warmup": optim.cosine_schedule(3e-4, 60, warmup=10),
    "cosine_warmup_none": optim.cosine_schedule(3e-4, 60),
    "linear_warmup": optim.linear_schedule(3e-4, 60, warmup=10),
    "constant_warmup": optim.constant_schedule(3e-4, warmup=10),
    "cosine_annealing": optim.cosine_schedule(3e-4, 60, final=3e-5),
    "adamw_cosine_warmup": optim.cosine_schedule(0.01, 20, warmup=4),
    "sgd_linear_warmup": optim.linear_schedule(0.1, 20, warmup=4),
}
CLIPPED = ["clip_above", "clip_below", "clip_zero", "clip_exact", "clip_tiny"]


def test_every_reference_case_is_reproduced_or_listed_with_its_reason():
    covered = {"common", "clip_value", *SGD_CASES, *ADAMW_CASES, *LOOPS, *SCHEDULES, *CLIPPED}
    assert covered | set(NOT_HERE) == set(CASES)
    assert not covered & set(NOT_HERE)


def options(case):
    """The keyword arguments of an optimiser for a case's parameters."""
    given = {name: value for name, value in CASES[case]["params"].items() if name not in ("clip", "model")}
    learning_rate = given.pop("lr")
    if "warmup" in given:
        schedule = optim.linear_schedule if case == "sgd_linear_warmup" else optim.cosine_schedule
        learning_rate = schedule(learning_rate, given.pop("total"), warmup=given.pop("warmup"))
    decay = given.pop("weight_decay", 0.0 if case == "adam" else None)
    if isinstance(decay, list):
        given["weight_decay"] = lambda path, p: decay[int(re.search(r"p(\d)", path)[1])]
    elif decay is not None:
        given["weight_decay"] = decay
    return {"learning_rate": learning_rate, **given}


def gradients_at(case, t):
    found = {name: g[t] for name, g in CASES["common"]["grad"].items()}
    if case == "adamw_missing_grad":
        found["p1"] = None
    if case == "adamw_zero_grad":
        found["p1"] = np.zeros(4)
    return found


@pytest.mark.parametrize("case", SGD_CASES + ADAMW_CASES)
def test_trajectories_are_the_reference_s(case):
    optimiser = (optim.SGD if case in SGD_CASES else optim.AdamW)(CASES["common"]["in"], **options(case))
    for t in range(20):
        for name, path in CASES[case]["out"].items():
            np.testing.assert_allclose(optimiser.params[name], path[t], rtol=1e-11, atol=1e-13)
        optimiser.update(gradients_at(case, t))
    for name, path in CASES[case]["out"].items():
        np.testing.assert_allclose(optimiser.params[name], path[20], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("case", LOOPS)
def test_training_loops_are_the_reference_s(case):
    given, out = CASES[case]["in"], CASES[case]["out"]

    def loss(p):
        h = np.tanh(given["x"] @ p["p0"] + p["p1"])
        return np.mean((h @ p["p2"] + p["p3"] - given["y"]) ** 2)

    params = {name: given[name] for name in ("p0", "p1", "p2", "p3")}
    optimiser = (optim.AdamW if "adamw" in case else optim.SGD)(params, **options(case))
    for t in range(20):
        value, gradients = ng.value_and_grad(loss)(params)
        np.testing.assert_allclose(value, out["loss"][t], rtol=1e-9)
        if "grad_norm" in out:
            gradients, norm = optim.clip_by_global_norm(gradients, CASES[case]["params"]["clip"])
            np.testing.assert_allclose(norm, out["grad_norm"][t], rtol=1e-9)
        params = optimiser.update(gradients)
        for name, p in params.items():
            np.testing.assert_allclose(p, out[name][t + 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_are_the_reference_s_and_then_hold(case):
    schedule, expected = SCHEDULES[case], CASES[case]["lr"]["per_step"]
    total = CASES[case]["params"].get("total", len(expected))
    for step in range(min(total + 1, len(expected))):
        assert schedule(step) == pytest.approx(expected[step], rel=1e-11, abs=1e-18)
    assert {schedule(step) for step in range(total, total + 100)} == {schedule(total)}  # no rise after the end


@pytest.mark.parametrize("case", CLIPPED)
def test_clipping_by_norm_is_the_reference_s(case):
    given, out = CASES[case]["in"], CASES[case]["out"]
    clipped, norm = optim.clip_by_global_norm(given, CASES[case]["params"]["max_norm"])
    assert norm == pytest.approx(float(out["norm"]), rel=1e-12)
    for name, g in clipped.items():
        np.testing.assert_allclose(g, out[name], rtol=1e-12)


def test_clipping_by_value_is_the_reference_s():
    given, out = CASES["clip_value"]["in"], CASES["clip_value"]["out"]
    for name, g in optim.clip_by_value(given, CASES["clip_value"]["params"]["clip_value"]).items():
        np.testing.assert_array_equal(g, out[name])


OPTIMISERS = {
    "sgd": lambda params, rate=0.1: optim.SGD(params, rate),
    "nesterov": lambda params, rate=0.1: optim.SGD(params, rate, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adamw": lambda params, rate=0.1: optim.AdamW(params, rate),
}


def tree(seed, dtype=np.float64):
    """A tree of every container with leaves of several ranks, an empty one and None."""
    rng = np.random.default_rng(seed)
    leaf = lambda *shape: rng.normal(size=shape).astype(dtype)
    return {"a": [leaf(3, 2), leaf()], "b": (leaf(0, 4), {"c": leaf(5)}), "none": None}


def snapshot(params):
    return [leaf.copy() for leaf in ng.tree.leaves(params)]


def same(left, right):
    return all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_only_the_optimiser_s_own_arrays_change(make):
    params, gradients = tree(0), tree(1)
    for leaf in ng.tree.leaves((params, gradients)):
        leaf.flags.writeable = False
    before, given = snapshot(params), snapshot(gradients)
    optimiser = make(params)
    arrays = ng.tree.leaves(optimiser.params)
    result = optimiser.update(gradients)
    assert same(snapshot(params), before)
    assert same(snapshot(gradients), given)
    assert all(x is y for x, y in zip(ng.tree.leaves(result), arrays, strict=True))
    moved = [not np.array_equal(x, y) for x, y in zip(arrays, before, strict=True)]
    assert moved == [x.size > 0 for x in arrays]


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_float32_stays_float32_and_dtypes_may_be_mixed(make):
    single, double = tree(0, np.float32), tree(0)
    optimiser = make([single, double])
    for seed in range(3):
        optimiser.update([tree(seed, np.float32), tree(seed)])
    assert {leaf.dtype for leaf in ng.tree.leaves(optimiser.params[0])} == {np.dtype(np.float32)}
    for x, y in zip(*(ng.tree.leaves(params) for params in optimiser.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)
    assert {leaf.dtype.itemsize for leaf in ng.tree.leaves(optimiser.state()) if leaf.dtype.kind == "f"} == {4, 8}


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_blocks_don_t_change_the_result(make, block, monkeypatch):
    whole = make(tree(0))
    monkeypatch.setattr(optim, "BLOCK", block)
    blocked = make(tree(0))
    for seed in range(3):
        whole.update(tree(seed))
        blocked.update(tree(seed))
    assert same(snapshot(whole.params), snapshot(blocked.params))


@settings(deadline=None, max_examples=30)
@given(present=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6))
def test_a_missing_gradient_is_as_if_the_leaf_were_not_there(present):
    shapes, rng = [(2,), (3, 2), (), (4,)], np.random.default_rng(0)
    params = [rng.normal(size=shape) for shape in shapes]
    weight_decay = lambda path, p: 0.1 * (p.ndim == 1)  # two groups, whose leaves alternate
    together = optim.AdamW(params, 0.1, weight_decay=weight_decay)
    alone = [optim.AdamW(p, 0.1, weight_decay=weight_decay) for p in params]
    for row in present:
        gradients = [rng.normal(size=shape) if here else None for shape, here in zip(shapes, row)]
        together.update(gradients)
        for optimiser, g in zip(alone, gradients):
            if g is not None:
                optimiser.update(g)
    assert same(together.params, [optimiser.params for optimiser in alone])


def test_none_may_stand_for_a_subtree():
    optimiser = OPTIMISERS["adamw"](tree(0))
    before = snapshot(optimiser.params)
    optimiser.update({"a": None, "b": tree(1)["b"], "none": None})
    unchanged = [np.array_equal(x, y) for x, y in zip(snapshot(optimiser.params), before, strict=True)]
    assert unchanged == [True, True, True, False]  # the third is empty


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_saved_and_restored_it_goes_on_as_if_never_stopped(make):
    rate = optim.cosine_schedule(0.1, 6, warmup=2)
    whole, first, second = make(tree(0), rate), make(tree(0), rate), make(tree(9), rate)
    for seed in range(3):
        first.update(tree(seed) | {"a": None} if seed == 1 else tree(seed))
    file = io.BytesIO()
    np.savez(file, *ng.tree.leaves(first.state()))
    first.update(tree(7))  # the state is a copy: what comes later doesn't reach it
    file.seek(0)
    with np.load(file) as arrays:
        state = ng.tree.unflatten(first.state(), [arrays[name] for name in arrays.files])
    second.restore(state)
    for seed in range(6):
        gradients = tree(seed) | {"a": None} if seed == 1 else tree(seed)
        whole.update(gradients)
        if seed >= 3:
            second.update(gradients)
    assert same(snapshot(whole.state()), snapshot(second.state()))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_a_copy_goes_on_from_where_it_was_made_and_leaves_the_original(copied):
    gradients = {"w": np.ones((2, 3)), "b": [np.ones(2, np.float16), np.ones((), np.float32)]}
    optimizer = optim.AdamW(gradients, 0.1)
    optimizer.update(gradients)
    before = optimizer.state()
    other = copied(optimizer)
    moved = other.update(gradients)
    assert same(snapshot(optimizer.state()), snapshot(before))
    assert moved is other.params
    assert moved["w"][0, 0] < before["params"]["w"][0, 0]
    optimizer.update(gradients)
    assert same(snapshot(optimizer.state()), snapshot(other.state()))
    assert same(snapshot(moved), snapshot(optimizer.params))


def test_weights_start_and_stay_apart_in_memory():
    shared = np.ones(3)
    optimiser = optim.SGD({"x": shared, "y": shared}, 1.0)
    optimiser.update({"x": np.ones(3), "y": np.zeros(3)})
    np.testing.assert_array_equal(optimiser.params["y"], np.ones(3))
    assert not any(np.shares_memory(x, y) for x, y in itertools.combinations([*optimiser.params.values(), shared], 2))


WRONG_GRADIENTS = {
    "a missing key": ({"w": [np.ones(2), np.ones(3)]}, ValueError, r"keys, but lacks \['b'\]: give"),
    "an unknown key": ({"w": [np.ones(2), np.ones(3)], "b": 1.0, "c": 1.0}, ValueError, r"has besides \['c'\]"),
    "a shorter list": ({"w": [np.ones(2)], "b": 1.0}, ValueError, r"gradients\['w'\] is list with \['\[0\]'\]"),
    "a leaf for a node": ({"w": np.ones(2), "b": 1.0}, ValueError, r"gradients\['w'\] is a leaf"),
    "a node for a leaf": ({"w": [np.ones(2), [1.0]], "b": 1.0}, ValueError, r"gradients\['w'\]\[1\] is list"),
    "another shape": ({"w": [np.ones(2), np.ones((3, 1))], "b": 1.0}, ValueError, r"gradients\['w'\]\[1\] has shape"),
    "integers": ({"w": [np.ones(2), np.arange(3)], "b": 1.0}, TypeError, r"gradients\['w'\]\[1\] .*int64"),
    "complex numbers": ({"w": [np.ones(2), np.ones(3)], "b": 1j}, TypeError, r"gradients\['b'\] .*complex128"),
}


@pytest.mark.parametrize(("gradients", "error", "message"), WRONG_GRADIENTS.values(), ids=WRONG_GRADIENTS)
def test_an_error_names_the_path_and_changes_nothing(gradients, error, message):
    optimiser = optim.AdamW({"w": [np.ones(2), np.ones(3)], "b": 1.0}, 0.1)
    before = snapshot(optimiser.state())
    with pytest.raises(error, match=message):
        optimiser.update(gradients)
    assert same(snapshot(optimiser.state()), before)


def test_a_state_of_another_optimiser_is_refused_and_changes_nothing():
    adamw, sgd = optim.AdamW([np.ones(2), np.ones(3)], 0.1), optim.SGD([np.ones(2), np.ones(3)], 0.1, momentum=0.9)
    narrow = optim.AdamW([np.ones(2), np.ones(4)], 0.1)
    single = optim.AdamW([np.ones(2), np.ones(3, np.float32)], 0.1)
    before = snapshot(adamw.state())
    for other, message in (
        (sgd, "trees differ at state"),
        (narrow, r"state\['params'\]\[1\] is float64\(4,\)"),
        (single, r"state\['params'\]\[1\] is float32"),
    ):
        with pytest.raises(ValueError, match=message):
            adamw.restore(other.state())
    assert same(snapshot(adamw.state()), before)


WRONG_OPTIONS = {
    "negative rate": (lambda: optim.SGD([1.0], -0.1), "learning rate"),
    "NaN rate": (lambda: optim.AdamW([1.0], np.nan), "learning rate"),
    "momentum": (lambda: optim.SGD([1.0], 0.1, momentum=1.0), "momentum must be .*below 1"),
    "nesterov without momentum": (lambda: optim.SGD([1.0], 0.1, nesterov=True), "nesterov needs momentum"),
    "nesterov and dampening": (
        lambda: optim.SGD([1.0], 0.1, momentum=0.9, dampening=0.1, nesterov=True),
        "no dampening",
    ),
    "beta": (lambda: optim.AdamW([1.0], 0.1, betas=(0.9, 1.0)), r"betas\[1\]"),
    "three betas": (lambda: optim.AdamW([1.0], 0.1, betas=(0.9, 0.9, 0.9)), "two betas"),
    "eps": (lambda: optim.AdamW([1.0], 0.1, eps=0.0), "positive eps"),
    "decay": (lambda: optim.AdamW([1.0], 0.1, weight_decay=-1.0), "weight_decay"),
    "decay of a leaf": (lambda: optim.AdamW({"w": 1.0}, 0.1, weight_decay=lambda *_: np.inf), r"params\['w'\]"),
    "one beta": (lambda: optim.AdamW([1.0], 0.1, betas=0.9), r"two betas, such as \(0.9, 0.999\), not 0.9"),
    "eps of float32": (lambda: optim.AdamW([np.float32(1)], 0.1, eps=1e-50), "positive eps in float32"),
    "norm": (lambda: optim.clip_by_global_norm([1.0], -1.0), "max_norm"),
    "limit": (lambda: optim.clip_by_value([1.0], np.nan), "limit"),
    "total": (lambda: optim.cosine_schedule(0.1, 5, warmup=5), "warmup of 5 and a total of 5"),
    "warmup": (lambda: optim.constant_schedule(0.1, warmup=-1), "warmup of -1"),
    "no total": (lambda: optim.cosine_schedule(0.1, math.nan), "total of nan"),
    "step": (lambda: optim.cosine_schedule(0.1, 5)(-1), "starts at step 0, so there is no rate at -1"),
    "step of a warmup": (lambda: optim.constant_schedule(0.1, warmup=3)(-2), "no rate at -2"),
    "schedule's rate": (lambda: optim.linear_schedule(np.nan, 5), "learning rate"),
}


@pytest.mark.parametrize(("call", "message"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_options_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: optim.SGD([1.0], "x"), "the learning rate"),
        (lambda: optim.SGD([1.0], [0.1]), "the learning rate"),
        (lambda: optim.SGD([1.0], lambda step: None), "the learning rate"),
        (lambda: optim.SGD([1.0], 0.1, momentum="x"), "momentum"),
        (lambda: optim.AdamW([1.0], 0.1, betas=(0.9, "x")), r"betas\[1\]"),
        (lambda: optim.AdamW([1.0], 0.1, eps=1j), "eps"),
        (lambda: optim.AdamW([1.0], 0.1, weight_decay=None), "weight_decay"),
        (lambda: optim.clip_by_value([1.0], "x"), "limit"),
        (lambda: optim.clip_by_global_norm([1.0], None), "max_norm"),
        (lambda: optim.linear_schedule(0.1, "x"), "total"),
        (lambda: optim.linear_schedule(0.1, 5, warmup=None), "warmup"),
    ],
)
def test_options_that_are_no_numbers_are_refused_by_name(call, name):
    with pytest.raises(TypeError, match=f"{name} must be a real number, not "):
        call()


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_float16_moves_as_float32_rounded(make):
    half = make(tree(0, np.float16))
    assert {leaf.dtype for leaf in ng.tree.leaves(half.params)} == {np.dtype(np.float16)}
    moments = {name: state for name, state in half.state().items() if name not in ("step", "counts", "params")}
    assert {leaf.dtype for leaf in ng.tree.leaves(moments)} <= {np.dtype(np.float32)}
    single = make(ng.tree.map(lambda p: p.astype(np.float32), half.params))
    half.update(tree(1, np.float16))
    single.update(tree(1, np.float16))
    for x, y in zip(ng.tree.leaves(half.params), ng.tree.leaves(single.params), strict=True):
        np.testing.assert_array_equal(x, y.astype(np.float16))


def test_float16_stands_gradients_of_zero_and_of_extreme_size():
    optimiser = optim.AdamW([np.ones(4, np.float16)], 0.125, weight_decay=0.0)
    for _ in range(3):
        optimiser.update([np.array([0, 1e-7, 6e4, -6e4], np.float16)])
    np.testing.assert_allclose(optimiser.params[0], [1, 1 - 0.375 * 1.2 / 1.3, 0.625, 1.375], rtol=0.01)
    again = optim.AdamW([np.zeros(4, np.float16)], 0.125, weight_decay=0.0)
    again.restore(optimiser.state())
    assert same(snapshot(again.state()), snapshot(optimiser.state()))


def test_a_schedule_s_bad_rate_is_refused_at_its_step():
    optimiser = optim.SGD([1.0], [0.1, np.inf].__getitem__)
    optimiser.update([1.0])
    with pytest.raises(ValueError, match="learning rate must be at least 0 and finite, not inf"):
        optimiser.update([1.0])
    assert optimiser.params[0] == 0.9


def test_parameters_must_be_floats():
    with pytest.raises(TypeError, match=r"params\['ids'\] must be .* not int64"):
        optim.SGD({"w": np.ones(2), "ids": np.arange(3)}, 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-30, 0, 30])
def test_a_norm_that_can_be_represented_is_found(dtype, exponent):
    scale = dtype(10.0**exponent) if dtype is np.float32 else 10.0 ** (10 * exponent)
    gradients = {"w": np.array([[3, 0], [0, 0]], dtype) * scale, "b": dtype(4) * scale}
    clipped, norm = optim.clip_by_global_norm(gradients, float(scale))
    assert norm == pytest.approx(5 * float(scale), rel=1e-6)
    assert {np.asarray(g).dtype for g in clipped.values()} == {np.dtype(dtype)}


@pytest.mark.parametrize("size", [1e-7, 2e-4, 1e-3, 1.0, 6e4])
def test_the_norm_of_float16_is_not_rounded_to_it(size):
    g = np.full((2, 2), size, np.float16)
    assert optim.clip_by_global_norm([g], 1.0)[1] == pytest.approx(2 * float(g[0, 0]), rel=1e-6)


def test_a_limit_beyond_float16_is_none():
    g = np.array([-np.inf, -6e4, 2.0], np.float16)
    np.testing.assert_array_equal(optim.clip_by_value([g], 1e6)[0], g)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_is_not_finite_is_named_and_left(bad):
    gradients = {"w": np.ones((2, 3)), "b": [np.ones(2), np.asarray(1.0)]}
    gradients["w"][1, 2] = bad
    with pytest.raises(ValueError, match=rf"gradients\['w'\]\[1, 2\] is {bad}: only finite"):
        optim.clip_by_global_norm(gradients, 1.0)
    np.testing.assert_array_equal(gradients["b"][0], np.ones(2))
    with pytest.raises(ValueError, match=rf"gradients\[1\] is {bad}"):
        optim.clip_by_global_norm([np.ones(2), bad], 1.0)


def test_clipping_changes_no_input_and_passes_over_none():
    gradients = {"w": np.full(3, 2.0), "b": None}
    clipped, _ = optim.clip_by_global_norm(gradients, 1.0)
    limited = optim.clip_by_value(gradients, 1.0)
    np.testing.assert_array_equal(gradients["w"], np.full(3, 2.0))
    np.testing.assert_array_equal(limited["w"], np.ones(3))
    assert clipped["b"] is limited["b"] is None
    assert np.linalg.norm(clipped["w"]) == pytest.approx(1.0, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(-1e6, 1e6), max_size=5), max_norm=st.just(0.0) | st.floats(1e-290, 1e3))
def test_the_clipped_norm_is_within_the_limit(values, max_norm):
    clipped, norm = optim.clip_by_global_norm([np.array(values)], max_norm)
    assert norm == pytest.approx(math.hypot(*values), rel=1e-12)
    assert math.hypot(*clipped[0]) <= max_norm * (1 + 1e-12)  # numbers too small for full precision aside
