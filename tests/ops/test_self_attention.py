"""self_attention: equal to its parts for every option, precision, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng
from npgrad.ops import self_attention
from npgrad.rope import RotaryEmbedding

RNG = np.random.default_rng(0)


def arguments(lead=(2, 5), features=6, heads=4, shared=2, width=4, outputs=3, dtype=np.float64):
    """x, the four weights and the four biases."""
    sizes = heads * width, shared * width, shared * width
    shapes = [(*lead, features), *((features, n) for n in sizes), (heads * width, outputs), *((n,) for n in sizes)]
    return [RNG.normal(size=s).astype(dtype) for s in (*shapes, (outputs,))]


def by_parts(x, wq, wk, wv, wo, bq, bk, bv, bo, *, heads, rope=None, **options):
    """What a person would write who has `attention` alone; rope turns queries and keys."""
    width = wq.shape[1] // heads

    def split(y):
        return np.moveaxis(y.reshape(*y.shape[:-1], y.shape[-1] // width, width), -2, -3)

    q, k, v = split(x @ wq + bq), split(x @ wk + bk), split(x @ wv + bv)
    if rope is not None:
        q, k = rope.rotate(q), rope.rotate(k)
    out = np.moveaxis(ng.attention(q, k, v, **options), -3, -2)
    return out.reshape(*x.shape[:-1], wo.shape[0]) @ wo + bo


def assert_same(f, g, args, tolerance=1e-12):
    (found, pullback), (expected, expected_pullback) = ng.vjp(f, *args), ng.vjp(g, *args)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    cotangent = RNG.normal(size=found.shape).astype(found.dtype)
    for a, b in zip(pullback(cotangent), expected_pullback(cotangent), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", ["adjacent", "half"])
@pytest.mark.parametrize("rotary_dim", [None, 2])
@pytest.mark.parametrize(
    "options", [{}, {"window": 2}, {"mask": np.arange(5) != np.array([0, 3])[:, None, None, None]}], ids=str
)
def test_equals_the_parts(layout, rotary_dim, options):
    rope, args = RotaryEmbedding(4, 8, layout=layout, rotary_dim=rotary_dim), arguments()
    tables = rope.tables((2, 4, 5, 4))
    for function in (self_attention, self_attention.reference):
        assert_same(
            lambda *a, f=function: f(*a, heads=4, tables=tables, layout=layout, **options),
            lambda *a: by_parts(*a, heads=4, rope=rope, **options),
            args,
        )


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 2), max_size=2), st.integers(0, 4), st.integers(0, 3), st.sampled_from([(1, 1), (4, 2)]),
    st.integers(0, 2),
)  # fmt: skip
def test_shapes(lead, tokens, features, heads, outputs):
    args = arguments((*lead, tokens), features, *heads, 2, outputs)
    assert_same(lambda *a: self_attention(*a, heads=heads[0]), lambda *a: by_parts(*a, heads=heads[0]), args)


def test_without_biases_or_with_some():
    args, zeros = arguments(), [np.zeros(n) for n in (16, 8, 8, 3)]
    expected = by_parts(*args[:5], *zeros, heads=4)
    np.testing.assert_allclose(self_attention(*args[:5], heads=4), expected, atol=1e-12)
    np.testing.assert_allclose(
        self_attention(*args[:5], bo=args[8], heads=4), by_parts(*args[:5], *zeros[:3], args[8], heads=4), atol=1e-12
    )
    gradient = ng.grad(lambda b: np.sum(self_attention(*args[:5], bo=b, heads=4)))(args[8])
    np.testing.assert_allclose(gradient, [10, 10, 10])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtype_is_kept(dtype):
    args, tables = arguments(dtype=dtype), RotaryEmbedding(4, 8).tables((2, 4, 5, 4))
    value, gradients = ng.value_and_grad(
        lambda *a: np.sum(self_attention(*a, heads=4, tables=tables)), tuple(range(9))
    )(*args)
    assert {np.asarray(value).dtype, *(g.dtype for g in gradients)} == {np.dtype(dtype)}


@pytest.mark.parametrize("which", range(5, 9))
def test_a_bias_of_more_precision_has_the_say(which):
    args = arguments(dtype=np.float32)
    args[which] = args[which].astype(float)
    wide = [a.astype(float) for a in args]
    assert self_attention(*args, heads=4).dtype == self_attention.reference(*args, heads=4).dtype == float
    np.testing.assert_allclose(self_attention(*args, heads=4), self_attention(*wide, heads=4), rtol=1e-13)


def test_inputs_are_left_alone():
    args, tables = arguments(), RotaryEmbedding(4, 8).tables((2, 4, 5, 4))
    before = [a.copy() for a in args]
    for a in args:
        a.flags.writeable = False
    out, pullback = ng.vjp(lambda *a: self_attention(*a, heads=4, tables=tables), *args)
    first, second = pullback(np.ones_like(out)), pullback(np.ones_like(out))
    for a, b, x, y in zip(args, before, first, second):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: (6,)}, r"x \(\.\.\., tokens, features\)"),
        ({0: (2, 5, 7)}, r"given are x \(2, 5, 7\), wq \(6, 16\)"),
        ({1: (16, 6)}, "wq"),
        ({3: (6, 4)}, "wk and wv"),
        ({4: (12, 3)}, r"wo \(heads · width, outputs\)"),
        ({5: (15,)}, "biases as long as their products"),
        ({5: (16, 3)}, r"after them biases .*, bq \(16, 3\), bk"),
        ({1: (6, 14), 4: (14, 3), 5: (14,)}, "14 features of queries and 8 of keys can't be split"),
        (
            {2: (6, 6), 3: (6, 6), 6: (6,), 7: (6,)},
            "6 of keys can't be split into heads of one width, with 4 of queries",
        ),
    ],
)
def test_errors(change, words):
    args = [np.ones(change.get(i, a.shape)) for i, a in enumerate(arguments())]
    for function in (self_attention, self_attention.reference):
        with pytest.raises(ValueError, match=words):
            function(*args, heads=4)


@pytest.mark.parametrize("tables", [np.ones((2, 4, 2)), np.ones((2, 5, 3))], ids=["tokens", "width"])
def test_tables_that_do_not_fit(tables):
    args = arguments()
    for function in (self_attention, self_attention.reference):
        with pytest.raises(ng.ops.RotaryError, match=r"cosines"):
            function(*args, heads=4, tables=tables)
    assert self_attention(*args, heads=4, tables=np.ones((2, 5, 2)).tolist()).shape == (2, 5, 3)


ROPE = RotaryEmbedding(4, 8)


@pytest.mark.parametrize(
    ("tables", "given"),
    [
        (ROPE, "RotaryEmbedding"),
        (ROPE.cosines[:5], r"array of shape \(5, 2\)"),
        (ROPE.cosines[:2], r"array of shape \(2, 2\)"),
        (np.array(1.0), r"array of shape \(\)"),
        ("ab", "str"),
        (ROPE.tables((5, 4))[:1], "tuple"),
        ((1.0, 2.0), "tuple"),
    ],
)
def test_tables_that_are_no_pair(tables, given):
    for function in (self_attention, self_attention.reference):
        with pytest.raises(TypeError, match=rf"a pair \(cosines, sines\).* not one {given}: ng\.RotaryEmbedding"):
            function(*arguments(), heads=4, tables=tables)


def test_heads_must_be_an_integer():
    for function in (self_attention, self_attention.reference):
        with pytest.raises(TypeError, match=r"heads must be an integer, not 4\.0"):
            function(*arguments(), heads=4.0)


def test_tables_as_the_documentation_makes_them():
    args, rope = arguments(), RotaryEmbedding(4, 8, layout="half")
    positions = np.array([[0, 2, 3, 5, 7], [7, 1, 0, 4, 4]])
    found = self_attention(*args, heads=4, tables=rope.tables((5, 4)), layout=rope.layout)
    np.testing.assert_allclose(found, by_parts(*args, heads=4, rope=rope), rtol=1e-12)
    tables = rope.tables((2, 1, 5, 4), positions=positions)
    found = self_attention(*args, heads=4, tables=tables, layout=rope.layout)
    for x, own, row in zip(args[0], positions, found):
        tables = rope.tables((5, 4), positions=own)
        expected = self_attention(x, *args[1:], heads=4, tables=tables, layout=rope.layout)
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_tables_are_constants():
    args, (cosines, sines) = arguments(), RotaryEmbedding(4, 8).tables((2, 4, 5, 4))
    tape = ng.Tape()
    with pytest.raises(TypeError, match=r"stop_gradient"):
        self_attention(tape.variable(args[0]), *args[1:], heads=4, tables=(tape.variable(cosines), sines))
