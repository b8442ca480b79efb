"""What a Variable lets through, what it refuses, and what its errors say."""

import copy
import pickle
import sys

import numpy as np
import pytest

import npgrad as ng
from npgrad.variable import NONDIFFERENTIABLE, REGISTRY, _out_place


@pytest.fixture
def x():
    return ng.Tape().variable(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), name="x")


def test_attributes(x):
    assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == ((2, 3), np.float64, 2, 6, 2)
    np.testing.assert_array_equal(x.value, [[1, 2, 3], [4, 5, 6]])


def test_repr(x):
    assert repr(x[0]) == "Variable(array([1., 2., 3.]), shape=(3,), dtype=float64, record=%1)"
    assert repr(x).endswith("record=x)")


def test_iteration_and_unpacking(x):
    first, second = x
    np.testing.assert_array_equal(second.value, [4, 5, 6])
    (g,) = x.tape.gradient(np.sum(first * second), [x])
    np.testing.assert_array_equal(g, [[4, 5, 6], [1, 2, 3]])
    with pytest.raises(TypeError, match="0-d Variable"):
        list(ng.Tape().variable(1.0))


def test_comparisons_and_truth_give_plain_values(x):
    assert type(x > 2) is np.ndarray
    np.testing.assert_array_equal(x == 2.0, [[False, True, False], [False] * 3])
    assert np.sum(x.value) > 0
    assert bool(np.sum(x)) is True
    assert not np.sum(x * 0.0)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


@pytest.mark.parametrize(
    "leak",
    [
        np.asarray,
        np.array,
        lambda x: np.array([x, x]),
        lambda x: np.asarray([x[0], np.ones(3)]),
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: complex(x[0, 0]),
        lambda x: [0, 1][x[0, 0]],
        lambda x: x[0, 0].item(),
        lambda x: x.tolist(),
        lambda x: np.sum([x, x]),
    ],
)
def test_what_would_leave_the_tape_says_what_to_do(x, leak):
    with pytest.raises(TypeError, match=r"lose its gradient|np\.stack") as error:
        leak(x)
    assert "np.stack" in str(error.value)


def test_writing_is_refused(x):
    with pytest.raises(TypeError, match="in place"):
        x[0] = 1.0
    a = np.ones(3)
    with pytest.raises(TypeError, match="behind the tape's back"):
        a += x[0]
    with pytest.raises(TypeError, match="behind the tape's back"):
        np.add(x, 1.0, out=np.ones((2, 3)))
    with pytest.raises(TypeError, match="behind the tape's back"):
        np.sum(x, out=np.ones(()))
    np.testing.assert_array_equal(a, 1.0)


POSITIONAL_OUT = [
    lambda x, a, o: np.dot(x, a, o), lambda x, a, o: x.dot(a, o), lambda x, a, o: np.dot(a, a, x),
    lambda x, a, o: np.take(x, [0, 1], 0, o), lambda x, a, o: x.take([0, 1], 0, o),
    lambda x, a, o: np.compress([1, 1], x, 0, o), lambda x, a, o: np.trace(x, 0, 0, 1, None, o),
    lambda x, a, o: np.outer(x, [1, 2], o), lambda x, a, o: np.concatenate([x], 0, o),
    lambda x, a, o: np.stack([x[0], x[1]], 0, o), lambda x, a, o: np.sum(x, None, None, o),
    lambda x, a, o: x.sum(None, None, o), lambda x, a, o: np.sum(a, 0, None, x), lambda x, a, o: x.mean(0, None, o),
    lambda x, a, o: np.max(x, 0, o), lambda x, a, o: np.round(x, 1, o), lambda x, a, o: x.round(1, o),
    lambda x, a, o: np.argmax(x, 0, o), lambda x, a, o: np.isposinf(x, o), lambda x, a, o: np.fix(x, o),
    lambda x, a, o: x.clip(0, 1, o), lambda x, a, o: np.choose([[0, 0], [0, 0]], [x, x], o),
    lambda x, a, o: np.percentile(x, 5, 0, o), lambda x, a, o: np.exp(x, o), lambda x, a, o: np.matmul(a, a, x),
    lambda x, a, o: np.add.reduce(x, 0, None, o), lambda x, a, o: np.nancumsum(x, 0, None, o),
]  # fmt: skip


@pytest.mark.parametrize("call", POSITIONAL_OUT)
def test_an_out_without_its_name_is_refused_before_anything_is_written(call):
    a, o = np.array([[1.0, 2.0], [3.0, 4.0]]), np.full((2, 2), 7.0)
    x = ng.Tape().variable(a.copy())
    with pytest.raises(TypeError, match="out= would write behind the tape's back"):
        call(x, a, o)
    np.testing.assert_array_equal(o, 7.0)
    np.testing.assert_array_equal(x.value, a)


def test_every_function_with_an_out_refuses_it_by_position():
    checked = 0
    for function in {*REGISTRY, *NONDIFFERENTIABLE}:
        place = sys.maxsize if isinstance(function, (tuple, np.ufunc)) else _out_place(function)
        if place < 10:
            x = ng.Tape().variable([[1.0, 2.0], [3.0, 4.0]])
            with pytest.raises(TypeError, match="out= would write behind the tape's back"):
                function(*[x] * place, np.empty((2, 2)))
            checked += 1
    assert checked > 35


def test_none_as_a_positional_out_is_no_out(x):
    assert np.sum(x, None, None, None).shape == x.sum(None, None, None).shape == ()


def test_in_place_operators_on_a_variable_make_a_new_one(x):
    before, y = x, x
    y += 1.0
    y *= 2.0
    assert y is not before
    np.testing.assert_array_equal(before.value[0], [1, 2, 3])
    np.testing.assert_array_equal(x.tape.gradient(np.sum(y), [x])[0], np.full((2, 3), 2.0))


def test_copying_and_pickling_are_refused(x):
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"copy or pickle x\.value"):
            attempt(x)


def test_functions_without_a_rule_say_so(x):
    with pytest.raises(TypeError, match=r"no rule for np\.fft\.fft.*ng\.primitive"):
        np.fft.fft(x)
    assert len(x.tape.records) == 1


def test_ufunc_keywords_that_cannot_be_honoured(x):
    with pytest.raises(TypeError, match=r"np\.exp with where= can't be differentiated"):
        np.exp(x, where=np.ones((2, 3), bool))
    with pytest.raises(TypeError, match=r"np\.add with dtype="):
        np.add(x, 1.0, dtype=np.float32)


def test_operands_of_foreign_types(x):
    for bad in (None, "a", {}, object()):
        with pytest.raises(TypeError):
            x + bad
        with pytest.raises(TypeError):
            bad * x
    np.testing.assert_array_equal((x + [1, 2, 3]).value, [[2, 4, 6], [5, 7, 9]])
    np.testing.assert_array_equal(([1, 2, 3] - x).value, [[0, 0, 0], [-3, -3, -3]])


def test_an_array_on_the_left_hands_over_to_the_variable(x):
    y = np.ones((2, 3)) * x
    assert type(y) is ng.Variable
    z = np.float64(2.0) ** x
    assert type(z) is ng.Variable
    np.testing.assert_allclose(x.tape.gradient(np.sum(z), [x])[0], np.log(2) * 2**x.value)
