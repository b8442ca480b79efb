"""Shaping rules: every declared example, memory layouts, hypothesis over shapes, and what is refused."""

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng


def gradient(f, x, cotangent=None):
    tape = ng.Tape()
    v = tape.variable(x)
    y = f(v)
    return tape.gradient(y, [v], np.ones(y.shape, y.dtype) if cotangent is None else cotangent)[0]


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("shaping"))
def test_examples(example, check):
    check(example)


@pytest.mark.parametrize("layout", ["C", "F", "mixed", "reversed", "read-only"])
@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_orders_follow_the_memory_of_the_array(order, layout):
    x = np.arange(24.0).reshape(2, 3, 4)
    x = {"F": np.asfortranarray(x), "mixed": x.transpose(1, 0, 2), "reversed": x[:, ::-1]}.get(layout, x)
    x.flags.writeable = layout != "read-only"
    reshape = [] if order == "K" else [lambda v: np.reshape(v, (4, -1), order)]  # NumPy's reshape has no order K
    for f in (lambda v: np.ravel(v, order), *reshape):
        v = ng.Tape().variable(x)
        assert np.array_equal(f(v).value, f(x))
        g = np.random.default_rng(0).normal(size=f(x).shape)
        want = np.zeros(24)
        want[f(x).astype(int).ravel()] = g.ravel()  # x holds the numbers 0..23
        assert np.array_equal(gradient(f, x, g), want[x.astype(int)])


@st.composite
def movements(draw):
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    n = len(shape)
    axis, other = draw(st.integers(-n, n - 1)), draw(st.integers(-n, n - 1))
    k = draw(st.integers(-4, 4))
    options = {
        "swapaxes": lambda x: np.swapaxes(x, axis, other), "moveaxis": lambda x: np.moveaxis(x, axis, other),
        "rollaxis": lambda x: np.rollaxis(x, axis, other), "flip": lambda x: np.flip(x, axis),
        "roll": lambda x: np.roll(x, k, axis), "roll_flat": lambda x: np.roll(x, k),
        "expand_dims": lambda x: np.expand_dims(x, axis), "tile": lambda x: np.tile(x, (abs(k), 2)),
        "repeat": lambda x: np.repeat(x, abs(k), axis), "transpose": np.transpose,
        "split": lambda x: np.array_split(x, abs(k) + 1, axis)[0],
        "concatenate": lambda x: np.concatenate([x, x], axis),
        "stack": lambda x: np.stack([x, x], axis), "resize": lambda x: np.resize(x, (abs(k), 3)),
        "diagonal": lambda x: np.diagonal(x, k, axis, other) if axis % n != other % n else x,
        "rot90": lambda x: np.rot90(x, k, (axis, other)) if axis % n != other % n else x,
    }  # fmt: skip
    return shape, options[draw(st.sampled_from(sorted(options)))]


@settings(deadline=None, max_examples=150)
@given(movements())
def test_elements_go_where_numpy_moves_them_and_cotangents_come_back(case):
    shape, f = case
    x = np.random.default_rng(0).normal(size=shape)
    assert np.array_equal(f(ng.Tape().variable(x)).value, f(x))
    numbers = np.arange(1.0, x.size + 1).reshape(shape)
    g = np.random.default_rng(1).normal(size=f(x).shape)
    want = np.zeros(x.size + 1)
    np.add.at(want, f(numbers).astype(int).ravel(), g.ravel())
    np.testing.assert_allclose(gradient(f, x, g), want[1:].reshape(shape), atol=1e-12)


PADDED = ["constant", "edge", "reflect", "symmetric", "wrap", "mean", "linear_ramp", "maximum", "minimum", "median"]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PADDED), st.tuples(*[st.integers(0, 5)] * 4), st.sampled_from(["even", "odd"]))
def test_any_padding(mode, width, reflect_type):
    kwargs = {"reflect_type": reflect_type} if mode in ("reflect", "symmetric") else {}
    x = np.random.default_rng(0).normal(size=(2, 3))
    width = (width[:2], width[2:])
    f = lambda v: np.pad(v, width, mode, **kwargs)
    np.testing.assert_allclose(ng.stop_gradient(f(ng.Tape().variable(x))), f(x), atol=1e-12)
    g = np.random.default_rng(1).normal(size=f(x).shape)
    step = 1e-6
    want = [
        [np.sum(g * (f(x + e) - f(x - e))) / (2 * step) for e in row] for row in step * np.eye(6).reshape(2, 3, 2, 3)
    ]
    np.testing.assert_allclose(gradient(f, x, g), want, atol=1e-7)


def test_pad_widths_in_all_their_forms():
    x = np.ones((2, 3))
    for width in (1, (1,), (1, 2), ((1, 2),), ((0, 1), (2, 0))):
        assert gradient(lambda v, width=width: np.pad(v, width), x).shape == (2, 3)
        assert np.pad(ng.Tape().variable(x), width).shape == np.pad(x, width).shape


def test_trim_zeros_keeps_what_numpy_keeps():
    x = np.array([0.0, 0.0, 1.5, 0.0, -2.0, 0.0])
    for trim in ("fb", "f", "b"):
        kept = np.trim_zeros(np.arange(6.0) * (x != 0), trim)  # 2 and 4 mark the ends
        v = ng.Tape().variable(x)
        assert np.array_equal(np.trim_zeros(v, trim).value, np.trim_zeros(x, trim))
        assert np.sum(gradient(lambda v, trim=trim: np.trim_zeros(v, trim), x)) == kept.size
    assert np.trim_zeros(ng.Tape().variable(np.zeros(3))).shape == np.trim_zeros(np.zeros(3)).shape


def test_precision_goes_and_comes_back():
    x = np.array([1.0, 2.0], np.float32)
    assert gradient(lambda v: v.astype(np.float64) * 3, x).dtype == np.float32
    assert ng.Tape().variable(x).astype(np.float64).dtype == np.float64
    assert np.concatenate([ng.Tape().variable(x), x], dtype=np.float64).dtype == np.float64
    for dtype in (int, bool):
        whole = ng.Tape().variable(x).astype(dtype)
        assert type(whole) is np.ndarray
        assert np.array_equal(whole, x.astype(dtype))
    with pytest.raises(TypeError, match="complex"):
        ng.Tape().variable(x).astype(complex)


def test_fill_values_that_are_variables_keep_their_gradient():
    zeros = ng.Tape().variable(np.zeros((2, 3)))
    assert gradient(lambda v: np.full_like(np.ones((2, 3)) * v, v[0]), np.full(3, 2.0))[0] == 6
    with pytest.raises(TypeError, match=r"np\.copyto"):
        np.full_like(np.zeros(2), zeros[0, 0])
    assert type(np.full_like(ng.Tape().variable(np.ones(2)), 3.0)) is np.ndarray


def test_several_arrays_give_tuples_as_numpy_has_it():
    v = ng.Tape().variable(np.ones(3))
    for f in (np.atleast_1d, np.broadcast_arrays, np.meshgrid, np.ix_):
        assert type(f(v, np.ones(3))) is type(f(np.ones(3), np.ones(3))) is tuple


def test_mistakes_are_named():
    v = ng.Tape().variable(np.ones((4, 3)))
    with pytest.raises(ValueError, match="4 can't be split into 3 equal"):
        np.split(v, 3)
    with pytest.raises(ValueError, match=r"one shape.*\(3,\)"):
        np.stack([v, np.ones(3)])
    with pytest.raises(ValueError, match="'xy' or 'ij'"):
        np.meshgrid(v[0], v[0], indexing="yx")
    with pytest.raises(TypeError, match="constant_values"):
        np.pad(v, 1, constant_values=v[0, 0])
    with pytest.raises(TypeError, match=r"np\.concatenate"):
        np.pad(v, 1, lambda *_: None)
    with pytest.raises(ValueError, match="must not be negative"):
        np.resize(v, (-1, 2))
    with pytest.raises(ValueError, match="1 or 2 dimensions"):
        np.diag(v[None])
    with pytest.raises(ValueError, match="no line"):
        np.apply_along_axis(np.sum, 0, ng.Tape().variable(np.ones((2, 0))))
    with pytest.raises(np.exceptions.AxisError):
        np.rollaxis(v, 0, 5)
    with pytest.raises(TypeError, match=r"np\.stack"):
        np.array([v, v])


def test_pad_widths_by_axis():
    x = np.arange(6.0).reshape(2, 3)
    for width, same in (({0: 1}, ((1, 1), (0, 0))), ({-1: (1, 2)}, ((0, 0), (1, 2))), ({0: 2, 1: 1}, ((2, 2), (1, 1)))):
        np.testing.assert_array_equal(np.pad(ng.Tape().variable(x), width).value, np.pad(x, same))


def test_a_split_into_no_parts_is_an_error():
    with pytest.raises(ValueError, match="into 0 parts"):
        np.split(ng.Tape().variable(np.ones(3)), 0)
