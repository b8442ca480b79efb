"""Indexing: every declared example, any index that hypothesis finds, functional updates, and what is refused."""

import copy

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgrad as ng
from npgrad.rules.indexing import scatter


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("indexing"))
def test_examples(example, check):
    check(example)


@st.composite
def indexed(draw):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    kind = draw(st.sampled_from(["basic", "arrays", "rows", "mask", "mixed"]))
    if kind == "basic":
        index = draw(hnp.basic_indices(shape, allow_newaxis=True))
    elif kind == "arrays":
        index = draw(
            hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=5, min_side=0))
        )
    elif kind == "rows":
        numbers = hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=6)
        index = draw(
            hnp.arrays(draw(st.sampled_from(["i1", "i8"])), numbers, elements=st.integers(-shape[0], shape[0] - 1))
        )
    elif kind == "mask":
        index = draw(hnp.arrays(bool, shape[: draw(st.integers(1, len(shape)))]))
    else:
        rows = draw(st.lists(st.integers(-shape[0], shape[0] - 1), max_size=5))
        rest = [None, ..., *[slice(None, None, -1)] * (len(shape) > 1)]
        index = (np.array(rows, int), draw(st.sampled_from(rest)))
    return shape, index


@settings(deadline=None, max_examples=200)
@given(indexed(), st.sampled_from([np.float32, np.float64]))
def test_any_index_reads_as_numpy_and_its_cotangent_adds_up(case, dtype):
    shape, index = case
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    tape = ng.Tape()
    v = tape.variable(x)
    y = v[index]
    assert np.array_equal(y.value, x[index])
    assert np.shape(y) == np.shape(x[index])
    g = np.random.default_rng(1).normal(size=y.shape).astype(dtype)
    want = np.zeros_like(x)
    np.add.at(want, index, g)
    (got,) = tape.gradient(y, [v], g)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.dtype == dtype


@settings(deadline=None, max_examples=150)
@given(indexed(), st.sampled_from(["whole", "scalar", "leading one"]))
def test_updates_at_any_index(case, form):
    shape, index = case
    x = np.random.default_rng(0).normal(size=shape)
    part = np.shape(x[index])
    if isinstance(index, np.ndarray) and index.dtype.kind == "b":  # NumPy refuses more dimensions there
        form = "whole" if form == "leading one" else form
    value = np.random.default_rng(1).normal(
        size={"whole": part, "scalar": (), "leading one": (1, *part)}[form if part else "scalar"]
    )
    for update, in_place in ((ng.set_at, np.ndarray.__setitem__), (ng.add_at, np.add.at)):
        want = x.copy()
        in_place(want, index, value.reshape(part) if value.ndim > len(part) else value)
        np.testing.assert_allclose(update(x, index, value), want, rtol=1e-14, atol=1e-15)
        g = np.random.default_rng(2).normal(size=shape)
        tape = ng.Tape()
        v, w = tape.variable(x), tape.variable(value)
        dx, dw = tape.gradient(update(v, index, w), [v, w], g)
        unit = np.zeros(value.shape)
        for place in np.ndindex(*value.shape):  # both are linear: a unit vector tells the slope
            unit[place] = 1
            moved = update(np.zeros(shape), index, unit)
            assert abs(np.sum(g * moved) - dw[place]) < 1e-12
            unit[place] = 0
        np.testing.assert_allclose(dx, g if update is ng.add_at else ng.set_at(g, index, 0.0))


def test_of_values_written_twice_the_last_has_the_gradient():
    tape = ng.Tape()
    x, value = tape.variable(np.zeros(3)), tape.variable(np.array([1.0, 2.0, 3.0, 4.0]))
    y = ng.set_at(x, [1, 0, 1, 1], value)
    np.testing.assert_array_equal(y.value, [2, 4, 0])
    dx, dvalue = tape.gradient(y, [x, value], np.array([10.0, 20.0, 30.0]))
    np.testing.assert_array_equal(dx, [0, 0, 30])
    np.testing.assert_array_equal(dvalue, [0, 10, 0, 20])


def test_updates_leave_their_arguments_and_keep_the_precision():
    x, value = np.zeros(3, np.float32), np.ones(2)
    for update in (ng.set_at, ng.add_at):
        tape = ng.Tape()
        v, w = tape.variable(x), tape.variable(value)
        y = update(v, slice(0, 2), w)
        assert y.dtype == np.float32
        dx, dw = tape.gradient(np.sum(y), [v, w])
        assert (dx.dtype, dw.dtype) == (np.float32, np.float64)
        assert not x.any()
    assert ng.set_at(np.arange(3), 0, 0.5).dtype == np.float64  # an array of integers would lose the value
    (found,) = (ng.grad(lambda w: np.sum(ng.set_at(np.arange(3), 0, w)))(0.5),)
    assert found == 1


def test_rows_of_nan_and_infinity_stay_in_their_rows():
    out = scatter(np.array([[np.nan, 1.0], [np.inf, 2.0], [3.0, 4.0]]), np.array([2, 0, 2]), (4, 2))
    np.testing.assert_array_equal(out, [[np.inf, 2], [0, 0], [np.nan, 5], [0, 0]])


def test_scatter_takes_cotangents_in_any_layout_and_leaves_them():
    g = np.random.default_rng(0).normal(size=(3, 4))
    index = np.array([1, 1, 0])
    want = np.stack([g[2], g[0] + g[1]])
    for view in (g, np.asfortranarray(g), g[::-1][::-1], np.broadcast_to(g[:1], (3, 4))):
        view = view.view()
        view.flags.writeable = False
        expected = want if view.strides[0] else np.stack([g[0], 2 * g[0]])
        np.testing.assert_allclose(scatter(view, index, (2, 4)), expected)


def test_take_modes_and_errors():
    v = ng.Tape().variable(np.arange(4.0))
    np.testing.assert_array_equal(np.take(v, [-1, 5], mode="clip").value, [0, 3])
    np.testing.assert_array_equal(np.take(v, [-1, 5], mode="wrap").value, [3, 1])
    assert np.take(v, []).shape == (0,)
    with pytest.raises(IndexError):
        np.take(v, [4])
    with pytest.raises(TypeError):
        np.take(v, [0.5])


def test_a_variable_is_no_index():
    tape = ng.Tape()
    v = tape.variable(np.arange(4.0))
    for attempt in (
        lambda: v[v], lambda: v[0, v] if v.ndim > 1 else v[(v,)], lambda: v[[v, v]], lambda: np.take(v, v),
        lambda: ng.set_at(v, v, 1.0), lambda: ng.add_at(v, (v,), 1.0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"index can't be a Variable.*\.value"):
            attempt()
    with pytest.raises(IndexError):
        v[7]
    with pytest.raises(TypeError, match="set_at"):
        v[0] = 1.0


X23 = np.arange(6.0).reshape(2, 3)
INDEXED = [
    (lambda x, i: x[i], np.array([0, 1, 1])), (lambda x, i: x[:, i], np.array([0, 2])),
    (lambda x, i: x[i], np.array([True, False])), (lambda x, i: x[i], [0, 1, 1]),
    (lambda x, i: np.take(x, i, axis=1), np.array([0, 2])), (lambda x, i: np.take(x, i), np.array([0, 5])),
    (lambda x, i: np.take_along_axis(x, i, 1), np.array([[0, 1], [2, 2]])),
    (lambda x, i: ng.set_at(X23, i, x[0]), np.array([0, 1])), (lambda x, i: ng.set_at(x, i, 1.0), np.array([0])),
    (lambda x, i: ng.add_at(X23, i, x), np.array([0, 1])), (lambda x, i: np.where(i, x, 0.0), X23 > 2),
    (lambda x, i: np.sum(x, where=i), X23 > 2), (lambda x, i: np.mean(x, where=i), X23 > 2),
    (lambda x, i: np.max(x, where=i, initial=0), X23 > 2), (lambda x, i: np.compress(i, x, 1), np.array([1, 0, 1])),
    (lambda x, i: np.select([i], [x]), X23 > 2), (lambda x, i: np.choose(i, [x, 2 * x]), (X23 > 2).astype(int)),
]  # fmt: skip


@pytest.mark.parametrize(("f", "index"), INDEXED)
def test_an_index_or_mask_that_changes_before_the_sweep_changes_nothing(f, index):
    def run(change):
        i = copy.deepcopy(index)
        tape = ng.Tape()
        x = tape.variable(X23)
        y = f(x, i)
        if change:
            i[:] = [0] * len(i) if isinstance(i, list) else np.zeros_like(i)
        return tape.gradient(y, [x], np.random.default_rng(0).normal(size=y.shape))[0]

    np.testing.assert_array_equal(run(True), run(False))


def test_listings_show_the_public_name():
    tape = ng.Tape()
    ng.set_at(tape.variable(np.ones(2)), 0, 2.0)
    assert "set_at[" in str(tape)
    assert "_set_at" not in str(tape)


@pytest.mark.parametrize("mode", ["wrap", "clip"])
def test_take_by_ids_too_narrow_for_the_size(mode):
    x, ids = np.arange(300.0), np.array([200, 7], np.uint8)
    got = np.take(ng.Tape().variable(x), ids, mode=mode)
    np.testing.assert_array_equal(got.value, np.take(x, ids, mode=mode))
