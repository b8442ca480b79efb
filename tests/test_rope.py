"""RotaryEmbedding: printed values, laws, positions, layouts, refusals; add_sinusoidal_position."""

import itertools
import json
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DATA, reference

import npgrad as ng

SEED = json.loads((DATA / "rope_seed_values.json").read_text())
WORKED = SEED["worked"]
LAYOUTS = {"adjacent": "adjacent", "split_half": "half"}
CASES = reference("rope_layouts")
ROTATIONS = {name: case for name, case in CASES.items() if case["op"] == "rotate q and k"}
PERMUTATIONS = {name: case for name, case in CASES.items() if name.startswith("permutation/d")}
SEGMENTS = {name: case for name, case in CASES.items() if name.startswith("segments/")}


def named(cases):
    return [pytest.param(case, id=case["name"]) for case in cases]


def code_of(name):
    """The course's name of a rejection as a code: ZeroFeatureWidth, zero-feature-width."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def close(found, exact, atol=1e-14):
    np.testing.assert_allclose(found, exact["value"] if isinstance(exact, dict) else exact, rtol=1e-13, atol=atol)


@pytest.mark.parametrize("case", named(WORKED["pair_tables"]))
def test_worked_pair_tables(case):
    rope = ng.RotaryEmbedding(case["d"], 32, case["base"])
    positions, shift = np.array(case["positions"]), case["shift"]
    q, k = np.array(case["q"], float), np.array(case["k"], float)
    close(rope.inverse_frequencies, case["frequencies"])
    close(rope.cosines[positions], case["cos"])
    close(rope.sines[positions], case["sin"])
    close(rope.cosines, np.cos(np.arange(32)[:, None] * rope.inverse_frequencies))
    turned = {}
    for name, x in (("q", q), ("k", k)):
        turned[name], pullback = ng.vjp(lambda x: rope.rotate(x, positions=positions), x)
        shifted = rope.rotate(x, positions=positions + shift)
        turned["shifted_" + name] = shifted
        close(turned[name], case[f"rotated_{name}"])
        close(shifted, case[f"shifted_{name}"])
        close(pullback(np.array(case[f"cot_{name}"], float))[0], case[f"grad_{name}"])
    close(turned["q"] @ turned["k"].T, case["dots"])
    close(turned["shifted_q"] @ turned["shifted_k"].T, case["shifted_dots"])
    for name, x in (("q", q), ("rotated_q", turned["q"]), ("shifted_q", turned["shifted_q"])):
        close(np.linalg.norm(x, axis=-1), case[f"norms_{name}"])


@pytest.mark.parametrize("case", named(WORKED["relative"]))
def test_worked_relative_scores(case):
    q, k = np.array([case["q"]]), np.array([case["k"]])
    one, other = (ng.RotaryEmbedding(q.shape[-1], 128, base) for base in (case["base"], case["other_base"]))
    for row in case["rows"]:
        m, n, shift = row["m"], row["n"], case["shift"]

        def score(m, n, key_table=one):
            return np.vecdot(one.rotate(q, positions=[m]), key_table.rotate(k, positions=[n]))[0]

        close(score(m, n), row["score"], 1e-13)
        close(score(m + shift, n + shift), row["score"], 1e-12)
        close(np.vecdot(q, one.rotate(k, positions=[n - m]))[0], row["score"], 1e-12)
        close(score(m, n, other), row["mixed_base_score"], 1e-13)
        close(score(m + shift, n + shift, other), row["mixed_base_score_shifted"], 1e-13)
    at = case["norm_at"]
    close(one.rotate(q, at["position"])[0], at["rotated_q"])
    close(np.sum(one.rotate(q, at["position"]) ** 2), at["dot_qq"])


@pytest.mark.parametrize("case", named(WORKED["reading"]))
def test_worked_readings_and_their_gradients(case):
    d, positions = len(case["q_last"]), np.array(case["positions"])
    rope = ng.RotaryEmbedding(d, 16, case["base"])

    def read(q, keys, values, turn):
        return ng.softmax(turn(q, positions[-1:]) @ turn(keys, positions).mT / np.sqrt(d)) @ values

    for name, expected in case["results"].items():
        order = case["order"] if name.endswith("swapped") else range(len(positions))
        keys, values = (np.array(case[n], float)[list(order)] for n in ("keys", "values"))
        turn = (lambda x, at: rope.rotate(x, positions=at)) if name.startswith("rope") else (lambda x, at: x)
        q = np.array([case["q_last"]], float)
        out, pullback = ng.vjp(lambda q, k, v, turn=turn: read(q, k, v, turn), q, keys, values)
        close(out[0], expected["output"])
        dq, dk, dv = pullback(np.array([case["cot"]]))
        close(dq[0], expected["grad_q_last"])
        close(dk, expected["grad_keys"])
        close(dv, expected["grad_values"])


@pytest.mark.parametrize("case", named(WORKED["half_tables"]))
def test_tables_with_the_angles_written_twice(case):
    rope = ng.RotaryEmbedding(case["head_dim"], case["context_length"], case["base"], layout="half")
    close(rope.inverse_frequencies, case["inv_freq"])
    for table, name in ((rope.cosines, "cos"), (rope.sines, "sin")):
        close(np.concatenate([table, table], axis=-1), case[name])
        listing = np.array(case[f"listing_{name}_float32"])
        assert np.abs(np.concatenate([table, table], axis=-1) - listing).max() <= case["float32_error"] * 1.001


def test_exercises():
    rope = ng.RotaryEmbedding(2, 16)
    x = np.array([[1.0, 0.0]])
    first, second, animation, table = SEED["exercises"]

    def dot(m, n):
        return np.vecdot(rope.rotate(x, m), rope.rotate(x, n))[0]

    close([dot(2, 3), dot(9, 10)], first["answer"])
    wide = ng.RotaryEmbedding(4, 2)
    close(wide.inverse_frequencies, second["angles"])
    close(np.linalg.norm(wide.rotate(np.array([[1.0, 0, 1, 0]]), 1)), second["length"])
    close([dot(1, 0), dot(4, 3), dot(4, 2)], animation["answer"])
    rows = rope.rotate(np.repeat(x, 3, 0), 7)
    close(rows @ rows.T, table["answer"])
    narrow = [rope.rotate(np.repeat(x, 3, 0).astype("f"), offset) for offset in (0, 7)]
    change = np.abs(narrow[0] @ narrow[0].T - narrow[1] @ narrow[1].T).max()
    assert change <= SEED["float32"]["document_tolerance"]


@pytest.mark.parametrize("case", named(WORKED["sinusoidal"]))
def test_sinusoids_are_added(case):
    x = np.array(case["embedding"])
    for row in case["rows"]:
        close(ng.add_sinusoidal_position(x[None], row["position"])[0], row["output"])
    many = ng.add_sinusoidal_position(np.stack([[x] * 3] * 2))
    assert many.shape == (2, 3, 4)
    np.testing.assert_array_equal(many[0, 1:], ng.add_sinusoidal_position(x[None].repeat(2, 0), 1))


def test_sinusoids_keep_the_precision_and_the_gradient():
    out, pullback = ng.vjp(ng.add_sinusoidal_position, np.zeros((2, 4), np.float32))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(pullback(out)[0], out)
    for x, code in ((np.ones(4), "input-rank"), (np.ones((2, 3)), "odd-feature-width")):
        with pytest.raises(ng.RotaryError) as found:
            ng.add_sinusoidal_position(x)
        assert found.value.code == code


def test_sinusoids_at_far_positions():
    x = np.zeros((2, 4))
    for offset in (-(2**63), -3, 2**63 - 1, 2**64 - 3):
        theta = np.array([1.0, 0.01])
        expected = [[np.sin(m * theta), np.cos(m * theta)] for m in (float(offset), float(offset + 1))]
        found = ng.add_sinusoidal_position(x, offset)
        np.testing.assert_allclose(found, np.swapaxes(expected, 1, 2).reshape(2, 4), rtol=1e-12)
    for offset, base, code in (
        (10**30, 1e4, "position-offset-overflow"),
        (2**64 - 2, 1e4, "position-offset-overflow"),
        (-(2**63) - 1, 1e4, "position-offset-overflow"),
        (0, np.array([1e4]), "invalid-base"),
        (99, 5e-324, "non-finite-table-value"),
    ):
        with pytest.raises(ng.RotaryError) as found:
            ng.add_sinusoidal_position(np.zeros((2, 40)), offset, base=base)
        assert found.value.code == code


@pytest.mark.parametrize("case", WORKED["table_limits"], ids=lambda c: f"{c['error']}-{c['max_positions']}-{c['base']}")
def test_refused_tables_in_the_course_s_order_of_checks(case):
    def make():
        return ng.RotaryEmbedding(case["feature_width"], case["max_positions"], float(case["base"]))

    if case["error"] is None:
        assert make().cosines.shape == (case["max_positions"], case["feature_width"] // 2)
        return
    tracemalloc.start()
    with pytest.raises(ng.RotaryError) as found:
        make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.value.code == code_of(case["error"])
    assert (found.value.position, found.value.pair) == (case.get("position"), case.get("pair"))
    assert peak < 100_000


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 80), st.integers(1, 60), st.floats(300, 323))
def test_the_first_value_that_is_not_finite_in_row_major_order(capacity, pairs, exponent):
    base = 10.0**-exponent
    with np.errstate(over="ignore", invalid="ignore"):
        theta = np.float64(base) ** (-np.arange(pairs) / pairs)
        angles = np.arange(capacity)[:, None] * theta
    wrong = np.argwhere(~np.isfinite(angles))
    if not len(wrong):
        assert np.isfinite(ng.RotaryEmbedding(2 * pairs, capacity, base).cosines).all()
        return
    with pytest.raises(ng.RotaryError) as found:
        ng.RotaryEmbedding(2 * pairs, capacity, base)
    assert (found.value.code, found.value.position, found.value.pair) == ("non-finite-table-value", *wrong[0])
    assert f"position {wrong[0][0]} and pair {wrong[0][1]}" in str(found.value)


@pytest.mark.parametrize("case", WORKED["boundaries"], ids=lambda c: f"{c['input_shape']}-{c['position_offset']}")
def test_boundaries(case):
    rope = ng.RotaryEmbedding(case["feature_width"], case["max_positions"], 100.0)
    tape = ng.Tape()
    x = tape.variable(np.ones(case["input_shape"]))
    if case["error"] is None:
        assert rope.rotate(x, case["position_offset"]).shape == tuple(case["output_shape"])
        return
    with pytest.raises(ng.RotaryError) as found:
        rope.rotate(x, case["position_offset"])
    assert found.value.code == case["error"]
    assert len(tape.records) == 1


def test_other_refusals():
    rope = ng.RotaryEmbedding(4, 6)
    x = np.ones((2, 3, 4))
    refused = [
        ("position-range-exceeded", lambda: rope.rotate(x, -1)),
        ("position-shape-mismatch", lambda: rope.rotate(x, positions=[0, 1])),
        ("position-shape-mismatch", lambda: rope.rotate(x, positions=3)),
        ("position-shape-mismatch", lambda: rope.rotate(x, positions=np.zeros((3, 3), int))),
        ("position-shape-mismatch", lambda: rope.rotate(x, positions=np.zeros((2, 1, 3), int))),
        ("unknown-layout", lambda: ng.RotaryEmbedding(4, 6, layout="halves")),
        ("odd-feature-width", lambda: ng.RotaryEmbedding(8, 6, rotary_dim=3)),
        ("zero-feature-width", lambda: ng.RotaryEmbedding(8, 6, rotary_dim=0)),
        ("zero-feature-width", lambda: ng.RotaryEmbedding(-2, 6)),
        ("rotary-width-mismatch", lambda: ng.RotaryEmbedding(8, 6, rotary_dim=10)),
        ("invalid-base", lambda: ng.RotaryEmbedding(8, 6, 10**400)),
        ("invalid-base", lambda: ng.RotaryEmbedding(8, 6, "10000")),
        ("feature-width-mismatch", lambda: ng.adjacent_to_half(np.ones((9, 2)), 4)),
    ]
    for code, refuse in refused:
        with pytest.raises(ng.RotaryError) as found:
            refuse()
        assert found.value.code == code
    for refuse in (
        lambda: rope.rotate(x, 1, positions=[0, 1, 2]),
        lambda: rope.rotate(x, 0.5),
        lambda: rope.rotate(x, positions=[0.0, 1.0, 2.0]),
        lambda: rope.rotate(x, positions=[True, False, True]),
        lambda: ng.RotaryEmbedding(4.0, 6),
    ):
        with pytest.raises(TypeError):
            refuse()


def test_angles_beyond_the_table_must_be_finite_too():
    rope = ng.RotaryEmbedding(4, 2, 1e-308)
    small = ng.RotaryEmbedding(400, 60, 1e-308)
    assert np.isfinite(rope.rotate(np.ones((1, 4)), positions=[2**40])).all()
    with pytest.raises(ng.RotaryError) as found:
        small.rotate(np.ones((2, 400)), positions=[0, 63])
    assert (found.value.code, found.value.position, found.value.pair) == ("non-finite-table-value", 63, 199)


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("which", ["q", "k"])
def test_reference_rotations_from_positions_alone(name, which):
    case = ROTATIONS[name]
    p, x, positions = case["params"], case["in"][which], case["in"]["positions"]
    rope = ng.RotaryEmbedding(
        p["head_dim"], 16, p["base"], layout=LAYOUTS[p["layout"]], rotary_dim=p["rotary_dim"],
        scaling={"type": "yarn", "factor": 1.0, "attention_factor": p["attention_scaling"]},
    )  # fmt: skip
    out, pullback = ng.vjp(lambda x: rope.rotate(x, positions=positions), x)
    found = pullback(case["cot"][which])[0]
    assert out.dtype == found.dtype == x.dtype
    # Tables that others computed in float32 are off by up to their error; float64 angles by position · 2⁻⁵³.
    tables = p["largest_table_error_vs_exact"] if p["tables_computed_in"] == "float32" else 0
    tolerance = 12 * tables + (1e-12 if x.dtype == float else 2e-6) + np.abs(positions).max() * 1e-15
    np.testing.assert_allclose(out, case["out"][which], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found, case["grad"][which], rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(out[..., p["rotary_dim"] :], x[..., p["rotary_dim"] :])
    np.testing.assert_array_equal(found[..., p["rotary_dim"] :], case["cot"][which][..., p["rotary_dim"] :])


@pytest.mark.parametrize("name", [n for n, c in ROTATIONS.items() if "exact" in c and n.startswith("adjacent")])
def test_large_and_negative_positions_against_fifty_digits(name):
    case = ROTATIONS[name]
    positions = case["in"]["positions"]
    rope = ng.RotaryEmbedding(case["params"]["head_dim"], 4, case["params"]["base"])
    one = rope.rotate(np.tile([1.0, 0.0], (len(positions), 4)), positions=positions)
    tolerance = 1e-15 + np.abs(positions).max() * 5e-16
    np.testing.assert_allclose(one[:, ::2], case["exact"]["cos"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(one[:, 1::2], case["exact"]["sin"], rtol=0, atol=tolerance)


def test_rest_of_a_partial_rotation_is_copied_bit_for_bit():
    x = np.array([[1.0, 2.0, np.nan, -0.0, np.inf, 5e-324]] * 2, np.float64)
    for layout in ("adjacent", "half"):
        out = ng.RotaryEmbedding(6, 4, layout=layout, rotary_dim=2).rotate(x, 1)
        assert out[:, 2:].tobytes() == x[:, 2:].tobytes()
        assert np.isfinite(out[:, :2]).all()


def test_a_rotation_records_one_operation():
    tape = ng.Tape()
    x = tape.variable(np.ones((2, 3, 4)))
    ng.RotaryEmbedding(4, 8).rotate(x, 2)
    assert [str(r.primitive) for r in tape.records[1:]] == ["rotary_pairs"]


def test_positions_in_the_table_and_beyond_it_are_the_same_function():
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    small, large = ng.RotaryEmbedding(8, 3), ng.RotaryEmbedding(8, 40)
    at = [3, 39, 0, 7, 7]
    np.testing.assert_allclose(small.rotate(x, positions=at), large.rotate(x, positions=at), rtol=1e-15, atol=1e-15)
    np.testing.assert_array_equal(large.rotate(x, positions=np.arange(4, 9)), large.rotate(x, 4))
    assert small.rotate(x[:, :0], positions=[]).shape == (2, 0, 8)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 5), (2, 3, 5)])
@pytest.mark.parametrize("kind", ["i1", "i8", "u2", "u8"])
def test_positions_per_row_and_per_head(shape, kind):
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    positions = np.random.default_rng(1).integers(0, 9, shape).astype(kind)
    rope = ng.RotaryEmbedding(4, 9)
    out = rope.rotate(x, positions=positions)
    full = np.broadcast_to(positions.reshape(shape[:-1] + (1,) * (3 - len(shape)) + shape[-1:]), x.shape[:-1])
    for index in np.ndindex(*x.shape[:-1]):
        np.testing.assert_allclose(out[index], rope.rotate(x[index][None], int(full[index]))[0], rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("positions", [[1, 2, 5], [1, -2, 10**7]])
def test_positions_are_neither_changed_nor_kept(positions):
    positions = np.array(positions)
    kept, rope = positions.copy(), ng.RotaryEmbedding(4, 8)
    x, g = np.random.default_rng(0).normal(size=(2, 3, 4))
    pullback = ng.vjp(lambda x: rope.rotate(x, positions=positions), x)[1]
    np.testing.assert_array_equal(positions, kept)
    before = pullback(g)[0]
    positions[:] = 0
    np.testing.assert_array_equal(pullback(g)[0], before)
    assert not np.array_equal(before, g)


def test_tables_are_read_only_and_results_are_not_views_of_them():
    rope = ng.RotaryEmbedding(4, 8)
    for table in (rope.cosines, rope.sines, rope.inverse_frequencies):
        assert table.dtype == float
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1
    out = rope.rotate(np.ones((3, 4)))
    out[...] = 7
    assert rope.cosines[0, 0] == 1


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 8), st.integers(-(10**6), 10**6), st.integers(-300, 300), st.integers(-(10**6), 10**6),
    st.sampled_from(["adjacent", "half"]), st.floats(1.5, 1e7), st.integers(0, 99),
)  # fmt: skip
def test_scores_depend_on_the_distance_alone(pairs, m, distance, shift, layout, base, seed):
    q, k = np.random.default_rng(seed).normal(size=(2, 1, 2 * pairs))
    rope = ng.RotaryEmbedding(2 * pairs, 1, base, layout=layout)

    def score(m, n):
        return np.vecdot(rope.rotate(q, positions=[m]), rope.rotate(k, positions=[n]))[0]

    size = np.linalg.norm(q) * np.linalg.norm(k)
    assert abs(score(m, m + distance) - score(m + shift, m + distance + shift)) <= 1e-9 * size
    assert abs(score(m, m + distance) - np.vecdot(q, rope.rotate(k, positions=[distance]))[0]) <= 1e-9 * size


def test_one_object_serves_any_order_of_offsets():
    rope, x = ng.RotaryEmbedding(8, 64), np.random.default_rng(0).normal(size=(5, 8))
    for offset in (0, 5, 0, 59, 5, 1):
        fresh = ng.RotaryEmbedding(8, 64).rotate(x, offset)
        np.testing.assert_array_equal(rope.rotate(x, offset), fresh)
        np.testing.assert_array_equal(rope.rotate(x, positions=np.arange(5) + offset), fresh)
        expected = ng.rotary_pairs(
            x, *(f(np.arange(offset, offset + 5)[:, None] * rope.inverse_frequencies) for f in (np.cos, np.sin))
        )
        np.testing.assert_allclose(fresh, expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_with_true_positions_equal_one_pass(name):
    case = SEGMENTS[name]
    rope = ng.RotaryEmbedding(8, 16, layout=LAYOUTS[case["params"]["layout"]])
    keys, cuts = case["in"]["keys"], case["params"]["cuts"]
    parts = list(itertools.pairwise(cuts))
    at_once = rope.rotate(keys)
    in_parts = np.concatenate([rope.rotate(keys[..., a:b, :], a) for a, b in parts], axis=-2)
    restarted = np.concatenate([rope.rotate(keys[..., a:b, :]) for a, b in parts], axis=-2)
    query = rope.rotate(case["in"]["query"], case["params"]["query_position"])
    np.testing.assert_allclose(in_parts, at_once, rtol=1e-14, atol=1e-15)
    for found, expected in (
        (at_once, "at_once"), (restarted, "restarted"), (rope.rotate(at_once), "twice"), (query, "query"),
        (query @ in_parts.mT, "scores"), (query @ restarted.mT, "scores_restarted"),
    ):  # fmt: skip
        np.testing.assert_allclose(found, case["out"][expected], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_permutation_commutes_with_the_rotation(name):
    case = PERMUTATIONS[name]
    p, x = case["params"], case["in"]["x_adjacent"]
    options = {"rotary_dim": p["rotary_dim"], "axis": -1}
    half = ng.adjacent_to_half(x, p["head_dim"], **options)
    np.testing.assert_array_equal(half, case["out"]["x_half"])
    np.testing.assert_array_equal(half, x[..., case["perm"]["adjacent_to_half"]])
    np.testing.assert_array_equal(ng.half_to_adjacent(half, p["head_dim"], **options), x)
    turned = {
        layout: ng.RotaryEmbedding(p["head_dim"], 8, p["base"], layout=layout, rotary_dim=p["rotary_dim"]).rotate(y)
        for layout, y in (("adjacent", x), ("half", half))
    }
    np.testing.assert_allclose(turned["adjacent"], case["out"]["rotated_adjacent"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(turned["half"], case["out"]["rotated_half"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ng.adjacent_to_half(turned["adjacent"], **options), turned["half"], atol=1e-14)


def test_permutation_of_projection_rows_and_columns():
    case = CASES["permutation/projection_rows"]
    w, p = case["in"]["w_adjacent"], case["params"]
    half = ng.adjacent_to_half(w, p["head_dim"])
    np.testing.assert_array_equal(half, case["out"]["w_half"])
    np.testing.assert_array_equal(ng.half_to_adjacent(half, p["head_dim"]), w)
    np.testing.assert_array_equal(ng.adjacent_to_half(w.T, p["head_dim"], axis=1), half.T)
    assert ng.adjacent_to_half(w.T.copy(), p["head_dim"], axis=-1).flags.c_contiguous
    np.testing.assert_array_equal(ng.adjacent_to_half(w[:, 0], p["head_dim"]), half[:, 0])
    for layout, weight in (("adjacent", w), ("half", half)):
        heads = np.swapaxes((case["in"]["h"] @ weight.T).reshape(3, p["heads"], p["head_dim"]), 0, 1)
        out = ng.rotary_pairs(heads, case["in"]["cos"], case["in"]["sin"], layout=layout)
        np.testing.assert_allclose(out[None], case["out"][f"rotated_{layout}"], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["pair0", "pair1"])
def test_two_published_attention_modules_differ_by_the_permutation_of_their_rows(name):
    """GPT-J's module turns adjacent pairs, GPT-NeoX's halves; both give the same outputs and gradients."""
    case = reference("attention_pair")[name]
    p, x, g = case["params"], case["in"]["x"], case["cot"]["y"]
    d, heads = p["head_dim"], p["heads"]
    projections = [case["gptj"][f"{n}_proj.weight"] for n in "qkv"]
    neox = case["neox"]["query_key_value.weight"].reshape(heads, 3, d, -1).swapaxes(0, 1).reshape(3, heads * d, -1)
    permuted = [ng.adjacent_to_half(w, d, rotary_dim=p["rotary_dim"]) for w in projections[:2]] + projections[2:]
    np.testing.assert_array_equal(permuted, neox)

    def attend(x, wq, wk, wv, wo, layout):
        rope = ng.RotaryEmbedding(d, 16, p["base"], layout=layout, rotary_dim=p["rotary_dim"])
        q, k, v = (np.swapaxes((x @ w.T).reshape(*x.shape[:-1], heads, d), -2, -3) for w in (wq, wk, wv))
        q, k = (rope.rotate(y, positions=case["in"]["positions"]) for y in (q, k))
        y = ng.softmax(ng.causal_mask(q @ k.mT * p["scale"])) @ v
        return np.swapaxes(y, -2, -3).reshape(x.shape) @ wo.T

    weights = {
        "adjacent": [*projections, case["gptj"]["out_proj.weight"]],
        "half": [*neox, case["neox"]["dense.weight"]],
    }
    for layout, expected in (("adjacent", "grad_gptj"), ("half", "grad_neox")):
        out, pullback = ng.vjp(lambda x, *w, layout=layout: attend(x, *w, layout), x, *weights[layout])
        np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-10, atol=1e-12)
        dx, dq, dk, dv, do = pullback(g)
        np.testing.assert_allclose(dx, case[expected]["x"], rtol=1e-9, atol=1e-12)
        if layout == "adjacent":
            for found, n in ((dq, "q_proj"), (dk, "k_proj"), (dv, "v_proj"), (do, "out_proj")):
                np.testing.assert_allclose(found, case[expected][f"{n}.weight"], rtol=1e-9, atol=1e-12)
        else:
            stacked = np.stack([a.reshape(heads, d, -1) for a in (dq, dk, dv)], 1).reshape(3 * heads * d, -1)
            np.testing.assert_allclose(stacked, case[expected]["query_key_value.weight"], rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 3), st.integers(0, 99))
def test_permutation_law(heads, pairs, rest, seed):
    d = 2 * pairs + rest
    x = np.random.default_rng(seed).normal(size=(4, heads * d))
    half = ng.adjacent_to_half(x, d, rotary_dim=2 * pairs, axis=1)
    np.testing.assert_array_equal(ng.half_to_adjacent(half, d, rotary_dim=2 * pairs, axis=-1), x)
    by_heads = half.reshape(4, heads, d)
    np.testing.assert_array_equal(by_heads[..., :pairs], x.reshape(4, heads, d)[..., 0 : 2 * pairs : 2])
    np.testing.assert_array_equal(by_heads[..., 2 * pairs :], x.reshape(4, heads, d)[..., 2 * pairs :])
