"""embedding: reference values, repeated ids, ids that are not there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference

import npgrad as ng

CASES = {name: case for name, case in reference("ops").items() if case["op"] == "embedding"}


@pytest.mark.parametrize("name", CASES)
def test_reference_values(name):
    case = CASES[name]
    ids = case["in"]["ids"]
    out, pullback = ng.vjp(lambda table: ng.embedding(table, ids), case["in"]["weight"])
    np.testing.assert_array_equal(out, case["out"]["y"])
    g = case["cot"]["y"]
    if (
        "padding_idx" in case["params"]
    ):  # a row without a gradient, which our function does not know: mask its cotangent
        g = g * (ids != case["params"]["padding_idx"])[..., None]
    np.testing.assert_allclose(pullback(g)[0], case["grad"]["weight"], rtol=1e-12, atol=1e-15)


def test_reference_values_of_a_tied_head():
    case = reference("ops")["tied_head"]
    ids = case["in"]["ids"]
    out, pullback = ng.vjp(lambda table: np.tanh(ng.embedding(table, ids)) @ table.T, case["in"]["weight"])
    np.testing.assert_allclose(out, case["out"]["y"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pullback(case["cot"]["y"])[0], case["grad"]["weight"], rtol=1e-12, atol=1e-14)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 300), st.integers(0, 4), st.lists(st.integers(0, 3), max_size=3), st.sampled_from("bhilBH"),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_gradient_adds_up_what_each_row_received(rows, width, shape, kind, seed):
    rng = np.random.default_rng(seed)
    table, ids = rng.normal(size=(rows, width)), rng.integers(min(rows, 100), size=shape).astype(kind)
    out, pullback = ng.vjp(lambda table: ng.embedding(table, ids), table)
    np.testing.assert_array_equal(out, table[ids])
    g = rng.normal(size=out.shape)
    expected = np.zeros_like(table)
    np.add.at(expected, ids, g)
    np.testing.assert_allclose(pullback(g)[0], expected, rtol=1e-12, atol=1e-13)
    by_index = ng.grad(lambda table: np.sum(g * table[ids]))(table)
    np.testing.assert_allclose(by_index, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("wrong", [5, -1, 300])
def test_ids_out_of_range(wrong):
    with pytest.raises(IndexError, match=rf"ids of a table of 5 rows must be in 0\.\.4, but {wrong} is among them"):
        ng.embedding(np.ones((5, 2)), [[0, 1], [wrong, 2]])


def test_other_errors():
    with pytest.raises(TypeError, match="must be integers, not float64"):
        ng.embedding(np.ones((5, 2)), np.ones(3))
    with pytest.raises(TypeError, match="must be integers, not bool"):
        ng.embedding(np.ones((5, 2)), np.array([True, False]))
    with pytest.raises(ValueError, match=r"shape \(rows, width\)"):
        ng.embedding(1.0, [0])
    with pytest.raises(IndexError, match="a table of 0 rows"):
        ng.embedding(np.ones((0, 2)), [0])


def test_no_ids():
    assert ng.embedding(np.ones((5, 2)), []).shape == (0, 2)
    assert ng.embedding(np.ones((0, 2)), np.zeros((3, 0), int)).shape == (3, 0, 2)


def test_ids_changed_later_do_not_reach_the_gradient():
    ids = np.array([0, 1])
    tape = ng.Tape()
    table = tape.variable(np.ones((3, 1)))
    out = ng.embedding(table, ids)
    ids[:] = 2
    np.testing.assert_array_equal(tape.gradient(np.sum(out), [table])[0], [[1], [1], [0]])


@pytest.mark.parametrize("dtype", ["i1", ">i2", ">i4", ">i8", "u1", ">u2", "u8"])
def test_ids_of_any_width_and_byte_order(dtype):
    table = np.arange(70_000.0)[:, None]
    ids = np.array([[3, 1], [127, 0]], dtype)
    np.testing.assert_array_equal(ng.embedding(table, ids)[..., 0], ids.astype(float))
    if "i" in dtype:
        for wrong in (-1, -128):  # which as unsigned numbers of few bits would be rows of the table
            with pytest.raises(IndexError, match=f"{wrong} is among them"):
                ng.embedding(table, np.array(wrong, dtype))
