"""Products: every declared example, any ranks and einsum strings against NumPy's own result, mistakes."""

import string

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("products"))
def test_examples(example, check):
    check(example)


def check_bilinear(f, *arrays):
    """Value as NumPy's; each gradient by unit vectors, exact since f is linear in each argument."""
    tape = ng.Tape()
    inputs = [tape.variable(a) for a in arrays]
    out = f(*inputs)
    np.testing.assert_allclose(out.value, f(*arrays), rtol=1e-12, atol=1e-12)
    assert out.shape == np.shape(f(*arrays))
    g = np.random.default_rng(9).normal(size=out.shape)
    for i, got in enumerate(tape.gradient(out, inputs, g)):
        want = np.zeros(arrays[i].shape)
        for place in np.ndindex(*want.shape):
            unit = np.zeros(want.shape)
            unit[place] = 1
            want[place] = np.sum(g * f(*arrays[:i], unit, *arrays[i + 1 :]))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)


@st.composite
def equations(draw):
    """An einsum string with shapes: repeated letters, axes of length 1, ellipses, implicit outputs."""
    letters = string.ascii_lowercase[: draw(st.integers(1, 4))]
    size = {c: draw(st.integers(1, 3)) for c in letters}
    terms = draw(st.lists(st.text(letters, max_size=3), min_size=1, max_size=4))
    dots = draw(st.booleans())
    lead = (2, 1)
    shapes, inputs = [], []
    for term in terms:
        ones = {c: draw(st.booleans()) and len(terms) > 1 and draw(st.booleans()) for c in letters}
        extra = lead[draw(st.integers(0, 2)) :] if dots else ()
        shapes.append(extra + tuple(1 if ones[c] else size[c] for c in term))
        inputs.append("..." * dots + term)
    used = sorted(set("".join(terms)))
    text = ",".join(inputs)
    if draw(st.booleans()):
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        text += "->" + "..." * dots + "".join(kept)
    return text, shapes


@settings(deadline=None, max_examples=150)
@given(equations())
def test_einsum_of_any_string(case):
    text, shapes = case
    arrays = [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]
    check_bilinear(lambda *a: np.einsum(text, *a), *arrays)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_matmul_of_any_ranks_and_broadcast_batches(data):
    n, k, m = (data.draw(st.integers(0, 3)) for _ in range(3))
    batch = data.draw(st.lists(st.integers(1, 2), max_size=2))
    left, right = (
        [1 if data.draw(st.booleans()) else b for b in batch[data.draw(st.integers(0, len(batch))) :]] for _ in "xy"
    )
    x = data.draw(st.sampled_from([(k,), (*left, n, k)]))
    y = data.draw(st.sampled_from([(k,), (*right, k, m)]))
    layout = data.draw(st.sampled_from(["C", "F"]))
    arrays = [np.asarray(np.random.default_rng(i).normal(size=s), order=layout) for i, s in enumerate((x, y))]
    check_bilinear(np.matmul, *arrays)


@pytest.mark.parametrize("rank", [3, 4])
def test_folded_products_are_numpys_in_float32(rank):
    x = np.random.default_rng(0).normal(size=(2,) * (rank - 2) + (5, 7)).astype(np.float32)
    y = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    tape = ng.Tape()
    v, w = tape.variable(x), tape.variable(y)
    out = np.matmul(v, w)
    np.testing.assert_allclose(out.value, x @ y, rtol=1e-5, atol=1e-6)
    dx, dy = tape.gradient(out, [v, w], np.ones(out.shape, np.float32))
    assert out.dtype == dx.dtype == dy.dtype == np.float32
    np.testing.assert_allclose(dy, np.broadcast_to(x.reshape(-1, 7).sum(axis=0)[:, None], (7, 3)), rtol=1e-4)


def test_a_long_chain_takes_the_cheap_order():
    shapes = [(30, 2), (2, 40), (40, 2), (2, 30)]
    arrays = [np.random.default_rng(i).normal(size=s) for i, s in enumerate(shapes)]
    tape = ng.Tape()
    out = np.linalg.multi_dot([tape.variable(a) for a in arrays])
    np.testing.assert_allclose(out.value, np.linalg.multi_dot(arrays))
    assert max(np.prod(r.shape) for r in tape.records[4:-1]) < 30 * 40  # never the product of the first two


def test_lists_are_operands_too():
    v = ng.Tape().variable(np.array([1.0, 2.0]))
    for f in (np.matmul, np.dot, np.inner, np.vdot):
        assert f(v, [3.0, 4.0]).value == f([3.0, 4.0], v).value == 11
    assert np.outer([1.0, 2.0, 3.0], v).shape == (3, 2)
    assert np.einsum("i,i->", v, [3.0, 4.0]).value == 11


def test_mistakes_are_named():
    v = ng.Tape().variable(np.ones((2, 3)))
    with pytest.raises(ValueError, match="'j' has sizes"):
        np.einsum("ij,jk->ik", v, v)
    with pytest.raises(ValueError, match="names 2 operands, but 1"):
        np.einsum("ij,jk->ik", v)
    with pytest.raises(ValueError, match="doesn't fit an operand of 2 dimensions"):
        np.einsum("ijk->i", v)
    with pytest.raises(ValueError, match="in one operand"):
        np.einsum("ii->i", v[:1])
    with pytest.raises(ValueError, match="each once"):
        np.einsum("ij->ii", v)
    with pytest.raises(TypeError, match="astype"):
        np.einsum("ij->i", v, dtype=np.float32)
    with pytest.raises(TypeError, match="out="):
        np.dot(v, v.T, out=np.empty((2, 2)))
    with pytest.raises(ValueError, match="3 elements"):
        np.cross(v.T, v.T)
    with pytest.raises(ValueError, match="sizes differ"):
        np.tensordot(v, v, axes=1)
    with pytest.raises(ValueError, match="two vectors"):
        np.linalg.outer(v, v)
    with pytest.raises(ValueError, match="multi_dot"):
        np.linalg.multi_dot([v])
    with pytest.raises(ValueError, match="mismatch"):
        np.matmul(v, v)


@pytest.mark.parametrize(
    ("shapes", "products"),
    [
        ([(20, 3), (3, 20), (20,)], [(3,), (20,)]),
        ([(4,), (4, 9), (9, 3)], [(9,), (3,)]),
        ([(2, 4), (4, 8), (8, 1)], [(4, 1), (2, 1)]),
        ([(2, 9), (9, 3), (3, 8)], [(2, 3), (2, 8)]),
        ([(8, 3), (3, 9), (9, 2)], [(3, 2), (8, 2)]),
    ],
)
def test_a_chain_of_three_is_parted_where_it_is_cheapest(shapes, products):
    tape = ng.Tape()
    np.linalg.multi_dot([tape.variable(np.ones(s)) for s in shapes])
    assert [r.shape for r in tape.records[3:]] == products


def test_inner_over_nothing_is_zero():
    x = ng.Tape().variable(np.zeros((3, 0)))
    np.testing.assert_array_equal(np.inner(x, np.zeros((2, 0))).value, np.zeros((3, 2)))


def test_einsum_by_lists_gives_the_axes_in_the_order_asked_for():
    x, y = np.random.default_rng(0).normal(size=(2, 3)), np.random.default_rng(1).normal(size=(3, 4))
    got = np.einsum(ng.Tape().variable(x), [0, 1], y, [1, 2], [2, 0])
    np.testing.assert_allclose(got.value, (x @ y).T, rtol=1e-13)
    assert np.einsum(ng.Tape().variable(x), [1, 0]).shape == (3, 2)


@pytest.mark.parametrize("dtype", ["i1", "u1", "f2"])
def test_einsum_with_constants_of_few_bits(dtype):
    """NumPy computes all of it in the dtype of the result: a product of two constants doesn't overflow in theirs."""
    a, x = np.array([100, 7, 90]).astype(dtype), np.array([1.3, 2.2, 0.7])
    value, slope = ng.value_and_grad(lambda x: np.einsum("i,i,i->", a, a * 1, x))(x)
    np.testing.assert_allclose(value, np.einsum("i,i,i->", a, a, x), rtol=1e-13)
    np.testing.assert_allclose(slope, a.astype(float) ** 2, rtol=1e-13)
