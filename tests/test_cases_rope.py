"""Bugs that others reported in rotary embeddings, tried here."""

import numpy as np
import pytest
from data import cases

import npgrad as ng
from npgrad.rope import frequencies

CASES = {run.__name__: run() for run in cases.REGISTRY if run.fault.startswith("rope-")}
ROTATIONS = [
    pytest.param(case, step, id=f"{name}-{i}")
    for name, case in CASES.items()
    for i, step in enumerate(case.get("steps", [case]))
    if "out" in step.get("expected", {})
]
SPELLING = {"original_length": "original_max_position_embeddings"}


def scaling_of(params):
    """The case's plain words in a checkpoint's spelling."""
    return {SPELLING.get(key, key): value for key, value in params.get("scaling", {}).items()}


def embedding(params, dim, max_positions=32):
    return ng.RotaryEmbedding(
        dim, max_positions, params["base"], layout=params.get("layout", "adjacent"),
        rotary_dim=params.get("rotary_dim"), scaling=scaling_of(params),
    )  # fmt: skip


def close(case, found, expected):
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=case["rtol"], atol=case["atol"])


def test_all_of_them_are_tried():
    tried = {case["id"] for case, _ in (p.values for p in ROTATIONS)}
    tables = {"rope_weight_permutation", "rope_exponent_sign", "rope_half_precision_table", "rope_odd_dimension",
              "rope_llama3_scaling", "rope_yarn_scaling", "rope_unknown_scaling_type"}  # fmt: skip
    assert {name for name, case in CASES.items() if case["id"] not in tried} == tables
    assert len(CASES) == 15


@pytest.mark.parametrize(("case", "step"), ROTATIONS)
def test_rotations(case, step):
    p, x = step["params"], step["inputs"]["x"]
    rope = embedding(p, x.shape[-1])
    positions = np.array(p["positions"])
    calls = [lambda x: rope.rotate(x, positions=positions)]
    if "offset" in p:
        calls.append(lambda x: rope.rotate(x, p["offset"]))
    for call in calls:
        out, pullback = ng.vjp(call, x)
        keep = np.asarray(step["inputs"].get("mask", 1))[..., None]
        close(case, out * keep, step["expected"]["out"] * keep)
        for wrong in step.get("wrong", {}).values():
            if "out:out" in wrong:
                assert not np.allclose(out, np.asarray(wrong["out:out"], float), rtol=1e-6)
        if "cotangent" in step:
            close(case, pullback(step["cotangent"]["out"])[0], step["expected_grads"]["x"])
    np.testing.assert_array_equal(positions, p["positions"])


def test_one_table_serves_every_offset():
    case = CASES["rope_cache_ignores_offset"]
    rope = ng.RotaryEmbedding(4, 16)
    for step in case["steps"]:
        close(case, rope.rotate(step["inputs"]["x"], step["params"]["offset"]), step["expected"]["out"])


def test_packed_documents_come_out_equal():
    case = CASES["rope_packed_documents"]
    out = ng.RotaryEmbedding(4, 8).rotate(case["inputs"]["x"], positions=case["params"]["positions"])
    np.testing.assert_array_equal(out[:3], out[3:])


def test_weight_permutation():
    case = CASES["rope_weight_permutation"]
    d, heads = case["params"]["head_dim"], case["params"]["n_heads"]
    rows = {name: ng.adjacent_to_half(case["inputs"][name], d) for name in ("wq", "wk")}
    for name, found in rows.items():
        np.testing.assert_array_equal(found, case["expected"][name])
        np.testing.assert_array_equal(ng.half_to_adjacent(found, d), case["inputs"][name])
        for wrong in case["wrong"].values():
            assert not np.array_equal(found, wrong.get(f"out:{name}", 0))
    u, w = np.array([0.4, -1.3]), np.array([-0.8, 0.6])
    for layout, weights in (("adjacent", case["inputs"]), ("half", rows)):
        rope = ng.RotaryEmbedding(d, 8, layout=layout)
        q = rope.rotate((weights["wq"] @ u).reshape(heads, 1, d), 5)
        k = rope.rotate((weights["wk"] @ w).reshape(heads, 1, d), 2)
        close(case, np.vecdot(q, k)[:, 0], case["expected"]["scores"])


def test_sign_of_the_exponent():
    case = CASES["rope_exponent_sign"]
    rope = ng.RotaryEmbedding(case["params"]["dim"], 8, case["params"]["base"])
    close(case, rope.cosines[case["params"]["positions"]], case["expected"]["cos"])
    close(case, rope.sines[case["params"]["positions"]], case["expected"]["sin"])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_tables_do_not_take_the_precision_of_the_activations(dtype):
    case = CASES["rope_half_precision_table"]
    (position,) = case["params"]["positions"]
    rope = ng.RotaryEmbedding(case["params"]["dim"], position + 1, case["params"]["base"])
    out = rope.rotate(np.tile(np.array([1, 0], dtype), (1, 16)), position)
    assert out.dtype == dtype
    close(case, out[:, ::2], case["expected"]["cos"])
    close(case, out[:, 1::2], case["expected"]["sin"])


def test_odd_width_is_refused_at_once():
    case = CASES["rope_odd_dimension"]
    for refused in (
        lambda: ng.RotaryEmbedding(5, 8),
        lambda: ng.RotaryEmbedding.from_config(
            {"hidden_size": 20, "num_attention_heads": 4, "max_position_embeddings": 8}, layout="half"
        ),
        lambda: ng.rotary_pairs(case["inputs"]["x"], np.ones((2, 2)), np.zeros((2, 2))),
    ):
        with pytest.raises(ng.RotaryError, match=r"even, not 5") as found:
            refused()
        assert found.value.code == "odd-feature-width"


@pytest.mark.parametrize("name", ["rope_llama3_scaling", "rope_yarn_scaling"])
def test_scaled_frequencies(name):
    case = CASES[name]
    p = case["params"]
    found, _ = frequencies(p["dim"], p["base"], scaling_of(p))
    close(case, found, case["expected"]["inv_freq"])
    for accepted in case["accept"]:
        found, _ = frequencies(p["dim"], p["base"], {**scaling_of(p), "truncate": False})
        close(case, found, accepted["expected"]["inv_freq"])


def test_unknown_scaling_is_refused_by_name():
    p = CASES["rope_unknown_scaling_type"]["params"]
    with pytest.raises(ng.RotaryError, match=r"ntk-by-guess.*known are.*llama3"):
        embedding(p, p["dim"])
