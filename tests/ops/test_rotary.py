"""rotary_pairs: reference values, layouts, shapes, precision, memory, and its derivative to second order."""

import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DATA, differences, reference

import npgrad as ng
from npgrad.check import EXAMPLES, examples_rope  # noqa: F401  (declares the examples)
from npgrad.ops import rotary

LAYOUTS = {"adjacent": "adjacent", "split_half": "half"}
CASES = reference("rope_layouts")
ROTATIONS = {name: case for name, case in CASES.items() if case["op"] == "rotate q and k"}
SHAPES = {name: case for name, case in CASES.items() if case["op"] == "rotate x"}
EXAMPLE_CALLS = [pytest.param(e, id=f"{i}") for i, e in enumerate(EXAMPLES[ng.rotary_pairs])]


def call(example):
    return lambda *args: example.function(*args, **example.kwargs)


def pairs(x, layout):
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if layout == "half" else (x[..., ::2], x[..., 1::2])


def written_out(x, cosines, sines, layout):
    """The definition, coordinate by coordinate."""
    out = np.empty(np.broadcast_shapes(x.shape[:-1], cosines.shape[:-1]) + x.shape[-1:], x.dtype)
    (a, b), (first, second) = pairs(x, layout), pairs(out, layout)
    first[...], second[...] = a * cosines - b * sines, a * sines + b * cosines
    return out


def tables(*shape, seed=0):
    angles = np.random.default_rng(seed).uniform(-4, 4, shape)
    return np.cos(angles), np.sin(angles)


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("which", ["q", "k"])
def test_reference_values_and_gradients(name, which):
    case = ROTATIONS[name]
    layout, width = LAYOUTS[case["params"]["layout"]], case["params"]["rotary_dim"]
    cosines, sines = (case["in"][n] if case["in"][n].ndim == 2 else case["in"][n][:, None] for n in ("cos", "sin"))
    x = case["in"][which][..., :width]
    out, pullback = ng.vjp(lambda x: ng.rotary_pairs(x, cosines, sines, layout=layout), x)
    found = pullback(case["cot"][which][..., :width])[0]
    assert out.dtype == found.dtype == x.dtype
    tolerance = 1e-12 if x.dtype == float else 1e-6
    np.testing.assert_allclose(out, case["out"][which][..., :width], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found, case["grad"][which][..., :width], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SHAPES)
def test_ranks_and_empty_axes(name):
    case = SHAPES[name]
    out, pullback = ng.vjp(lambda x: ng.rotary_pairs(x, case["in"]["cos"], case["in"]["sin"]), case["in"]["x"])
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pullback(case["cot"]["y"])[0], case["grad"]["x"], rtol=1e-12, atol=1e-14)


def test_tables_are_differentiable_inputs():
    case = CASES["adjacent/tables_as_inputs"]
    out, pullback = ng.vjp(ng.rotary_pairs, *(case["in"][n] for n in ("x", "cos", "sin")))
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-14)
    for found, name in zip(pullback(case["cot"]["y"]), ("x", "cos", "sin"), strict=True):
        np.testing.assert_allclose(found, case["grad"][name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("example", EXAMPLE_CALLS)
def test_every_coordinate_of_both_orders_equals_differences(example):
    f, args = call(example), example.args
    out, pullback = ng.vjp(f, *args)
    rng = np.random.default_rng(1)
    g = rng.normal(size=out.shape)
    for found, expected in zip(pullback(g), differences(f, args, g), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    directions = [rng.normal(size=np.shape(a)) for a in args]

    def slope(*args):
        gradients = ng.grad(lambda *args: np.sum(g * f(*args) ** 2), (0, 1, 2))(*args)
        return sum(np.sum(u * found) for u, found in zip(directions, gradients))

    for found, expected in zip(ng.grad(slope, (0, 1, 2))(*args), differences(slope, args), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


shapes = st.lists(st.integers(0, 3), max_size=3)


@settings(deadline=None, max_examples=60)
@given(shapes, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["adjacent", "half"]), st.sampled_from("efdg"))
def test_equals_its_definition(lead, tokens, count, layout, kind):
    rng = np.random.default_rng(len(lead))
    x = rng.normal(size=(*lead, tokens, 2 * count)).astype(kind)
    cosines, sines = tables(tokens, count)
    out = ng.rotary_pairs(x, cosines, sines, layout=layout)
    assert out.dtype == x.dtype
    assert out.shape == x.shape
    expected = written_out(x.astype(np.longdouble), cosines, sines, layout)
    epsilon = float(np.finfo(x.dtype).eps)
    np.testing.assert_allclose(out, expected, rtol=4 * epsilon, atol=40 * epsilon)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 9), st.sampled_from(["f", "d"]), st.integers(0, 99))
def test_halves_agree_to_the_bit_with_tables_of_full_width(lead, tokens, count, kind, seed):
    """Another implementation: the angles stand twice in each row, and the other half comes with a minus sign."""
    x = np.random.default_rng(seed).normal(size=(lead, tokens, 2 * count)).astype(kind)
    cosines, sines = (table.astype(kind) for table in tables(tokens, count, seed=seed))
    full_cosines, full_sines = np.concatenate([cosines, cosines], -1), np.concatenate([sines, sines], -1)
    turned = np.concatenate([-x[..., count:], x[..., :count]], -1)
    expected = x * full_cosines + turned * full_sines
    np.testing.assert_array_equal(ng.rotary_pairs(x, cosines, sines, layout="half"), expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from(["adjacent", "half"]), st.integers(0, 99))
def test_laws(tokens, count, layout, seed):
    rng = np.random.default_rng(seed)
    x, y, g = rng.normal(size=(3, 2, tokens, 2 * count))
    cosines, sines = tables(tokens, count, seed=seed)

    def turn(x, inverse=False, scale=1.0):
        return ng.rotary_pairs(x, scale * cosines, scale * sines, inverse=inverse, layout=layout)

    np.testing.assert_allclose(turn(turn(x), inverse=True), x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.sum(turn(x) ** 2, -1), np.sum(x**2, -1), rtol=1e-12)
    np.testing.assert_allclose(turn(2 * x - 3 * y), 2 * turn(x) - 3 * turn(y), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(np.sum(turn(x) * turn(y), -1), np.sum(x * y, -1), rtol=1e-10, atol=1e-11)
    adjoint = ng.vjp(lambda x: turn(x, scale=1.25), x)[1](g)[0]
    np.testing.assert_allclose(np.sum(g * turn(y, scale=1.25)), np.sum(adjoint * y), rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(adjoint, turn(g, inverse=True, scale=1.25))


@pytest.mark.parametrize("layout", ["adjacent", "half"])
@pytest.mark.parametrize("inverse", [False, True])
def test_memory_layout_changes_nothing(layout, inverse):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 6))
    cosines, sines = tables(4, 3)
    arranged = {
        "fortran": np.asfortranarray(x),
        "every second feature": np.repeat(x, 2, -1)[..., ::2],
        "all axes backwards": np.flip(np.flip(x).copy()),
        "rows backwards": np.flip(np.flip(x, 2).copy(), 2),
        "swapped heads and tokens": np.swapaxes(np.swapaxes(x, 1, 2).copy(), 1, 2),
        "the inside of wider rows": np.pad(x, [(0, 0)] * 3 + [(1, 1)])[..., 1:-1],
        "big-endian": x.astype(">f8"),
        "broadcast": np.broadcast_to(x[:1, :1], x.shape),
    }
    for name, y in arranged.items():
        y.flags.writeable = False
        kept, right = y.copy(), x if name != "broadcast" else np.broadcast_to(x[:1, :1], x.shape).copy()
        c, s = (np.asfortranarray(t)[::-1][::-1] for t in (cosines, sines))
        out = ng.rotary_pairs(y, c, s, inverse=inverse, layout=layout)
        expected = ng.rotary_pairs(right, cosines, sines, inverse=inverse, layout=layout)
        np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(y, kept)
        assert not np.shares_memory(out, y)


@pytest.mark.parametrize("layout", ["adjacent", "half"])
@pytest.mark.parametrize("heads", [1, 3, 64])
def test_heads_inside_tokens_stay_there(layout, heads):
    """What a projection leaves, (batch, tokens, heads, width) in memory, is neither copied nor rearranged."""
    x = np.random.default_rng(0).normal(size=(2, 70, heads, 8)).swapaxes(1, 2)
    out = ng.rotary_pairs(x, *tables(70, 4), layout=layout)
    assert out.swapaxes(1, 2).flags.c_contiguous
    np.testing.assert_array_equal(out, ng.rotary_pairs(x.copy(order="C"), *tables(70, 4), layout=layout))


def test_a_result_owns_its_memory():
    """A gradient that is a view would have to be copied before it is the caller's own."""
    x = np.ones((2, 3, 4), np.float32)
    for layout in ("adjacent", "half"):
        assert ng.rotary_pairs(x, *tables(3, 2), layout=layout).flags.owndata


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_what_lies_in_a_file_is_read_alone(layout, tmp_path):
    x = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(2, 3, 4))
    x[...] = 1.0
    out = ng.rotary_pairs(x, *tables(3, 2), layout=layout)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, ng.rotary_pairs(np.ones((2, 3, 4), np.float32), *tables(3, 2), layout=layout))
    np.testing.assert_array_equal(x, 1.0)


def test_tables_that_change_between_calls():
    x, (cosines, sines) = np.ones((3, 4)), tables(3, 2)
    for _ in range(3):
        np.testing.assert_array_equal(ng.rotary_pairs(x, cosines, sines), written_out(x, cosines, sines, "adjacent"))
        cosines *= 1.5


def test_one_table_serves_all_dtypes_directions_and_shapes():
    rope, rng = ng.RotaryEmbedding(8, 16), np.random.default_rng(0)
    shapes = (16, 8), (9, 16, 8), (300, 16, 8), (7, 8)
    for dtype, shape, back in itertools.product("efdg", shapes, (False, True)):
        x, start = rng.normal(size=shape).astype(dtype), 16 - shape[-2]
        out, pullback = ng.vjp(lambda x: rope.rotate(x, start), x)  # noqa: B023
        cosines, sines = rope.cosines[start:], rope.sines[start:]
        expected = written_out(x.astype(np.longdouble), cosines, -sines if back else sines, "adjacent")
        epsilon = float(np.finfo(dtype).eps)
        found = pullback(x)[0] if back else out
        np.testing.assert_allclose(found, expected, rtol=4 * epsilon, atol=40 * epsilon)


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_huge_arrays_are_rotated_like_small_ones(layout, monkeypatch):
    x, (cosines, sines) = np.random.default_rng(0).normal(size=(2, 3, 4, 6)), tables(4, 3)
    arranged = [x, x.swapaxes(1, 2).copy().swapaxes(1, 2), x.astype(np.float32), x.astype(np.float16)]
    small = [ng.rotary_pairs(y, cosines, sines, layout=layout) for y in arranged]
    monkeypatch.setattr(rotary, "HUGE", 0)
    for y, expected in zip(arranged, small):
        kept = y.copy()
        np.testing.assert_array_equal(ng.rotary_pairs(y, cosines, sines, layout=layout), expected)
        np.testing.assert_array_equal(y, kept)


def test_tables_per_batch_row():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 6))
    cosines, sines = tables(2, 1, 4, 3)
    out = ng.rotary_pairs(x, cosines, sines)
    for row in range(2):
        np.testing.assert_array_equal(out[row], ng.rotary_pairs(x[row], cosines[row, 0], sines[row, 0]))


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_float32_tables_are_rounded_once(layout):
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    cosines, sines = tables(3, 2)
    out, pullback = ng.vjp(lambda x: ng.rotary_pairs(x, cosines, sines, layout=layout), x)
    rounded = ng.rotary_pairs(x, cosines.astype(np.float32), sines.astype(np.float32), layout=layout)
    np.testing.assert_array_equal(out, rounded)
    assert out.dtype == pullback(out)[0].dtype == np.float32


def test_lists_and_integers_become_floats():
    np.testing.assert_array_equal(ng.rotary_pairs([[3, 4]], [[0]], [[1]]), [[-4.0, 3.0]])


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_nan_stays_within_its_pair(layout):
    x = np.ones((2, 6))
    x[0, 0] = np.nan
    out = ng.rotary_pairs(x, *tables(2, 3), layout=layout)
    where = [0, 1] if layout == "adjacent" else [0, 3]
    assert np.isnan(out[0, where]).all()
    assert np.isfinite(np.delete(out.ravel(), where)).all()


@pytest.mark.parametrize("layout", ["adjacent", "half"])
def test_the_sign_of_zero_is_that_of_the_arithmetic(layout):
    case = json.loads((DATA / "rope_seed_values.json").read_text())["worked"]["signed_zero"][0]
    out = ng.rotary_pairs(np.array(case["input"]), np.ones((3, 1)), np.zeros((3, 1)), layout=layout)
    np.testing.assert_array_equal(np.signbit(out), case["signbits_torch"])


C, S = np.ones((3, 2)), np.zeros((3, 2))
REFUSED = {
    "input-rank": [((4,), C, S), ((), C, S)],
    "odd-feature-width": [((3, 5), C, S)],
    "feature-width-mismatch": [
        ((3, 6), C, S), ((3, 4), C, S[:, :1]), ((3, 4), C[0], S[0]), ((3, 2), C, S), ((3, 4), 1.0, 0.0),
    ],
    "table-shape-mismatch": [
        ((2, 4), C, S), ((3, 4), C[:1], S[:1]), ((3, 4), C, S[:2]), ((2, 3, 4), np.ones((3, 3, 2)), np.ones((3, 3, 2))),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("code", "shape", "c", "s"), [(code, *given) for code in REFUSED for given in REFUSED[code]])
def test_shapes_that_do_not_fit(code, shape, c, s):
    tape = ng.Tape()
    x = tape.variable(np.ones(shape))
    for layout in ("adjacent", "half"):
        with pytest.raises(ng.RotaryError) as found:
            ng.rotary_pairs(x, c, s, layout=layout)
        assert found.value.code == code
        assert isinstance(found.value, ValueError)
    assert len(tape.records) == 1


def test_unknown_layout():
    with pytest.raises(ng.RotaryError, match="'adjacent' or 'half', not 'halves'") as found:
        ng.rotary_pairs(np.ones((3, 4)), C, S, layout="halves")
    assert found.value.code == "unknown-layout"


def test_an_error_comes_back_whole_from_another_process():
    error = pickle.loads(pickle.dumps(ng.RotaryError("a-code", "words", 3, 1)))
    assert (str(error), error.code, error.position, error.pair) == ("words", "a-code", 3, 1)


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="real numbers, not complex128"):
        ng.rotary_pairs(np.ones((3, 4), complex), C, S)


def test_the_pullback_keeps_the_tables_alone():
    """A rotation saves nothing of x: the derivative needs only the angles."""
    tape = ng.Tape()
    x = tape.variable(np.ones((3, 4)))
    ng.rotary_pairs(x, C, S)
    (pullback,) = tape.records[-1].pullbacks
    rule = getattr(pullback, "func", pullback)
    saved = [cell.cell_contents for cell in rule.__closure__ if isinstance(cell.cell_contents, np.ndarray)]
    assert {id(a) for a in saved} == {id(C), id(S)}


@pytest.mark.parametrize("layout", ["adjacent", "half"])
@pytest.mark.parametrize(("lanes", "tokens"), [(1, 300), (6, 64), (7, 64), (64, 3), (64, 64), (2, 300)])
def test_many_lanes_are_rotated_like_one(layout, lanes, tokens):
    """Short tables are repeated for speed where there is much to turn; that must not show."""
    x = np.random.default_rng(0).normal(size=(lanes, tokens, 64)).astype(np.float32)
    cosines, sines = tables(tokens, 32)
    out = ng.rotary_pairs(x, cosines, sines, layout=layout)
    expected = np.stack([ng.rotary_pairs(lane, cosines, sines, layout=layout) for lane in x])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out, written_out(x, cosines.astype("f"), sines.astype("f"), layout), rtol=0, atol=2e-6)
