"""Operators, and ndarray's methods and attributes: the same on a Variable as on its array, or an error that helps."""

import math
import operator

import numpy as np
import pytest

import npgrad as ng

X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])


def variable(x=X):
    return ng.Tape().variable(x)


def same(got, want):
    """Equal values, of the same type off the tape."""
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    np.testing.assert_array_equal(ng.stop_gradient(got), want)
    assert np.asarray(ng.stop_gradient(got)).dtype == np.asarray(want).dtype


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod]
PLAIN = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.floordiv]
OPERANDS = [
    2, 0.5, True, np.float64(0.5), np.float32(0.5), np.int64(2), np.array(2.0), np.array([1.0, 2.0, 3.0]),
    np.array([1, 2, 3]), [1.0, 2.0, 3.0], (1, 2, 3), np.ones((2, 1, 3), np.float32),
]  # fmt: skip


@pytest.mark.parametrize("other", OPERANDS, ids=repr)
@pytest.mark.parametrize("f", [*BINARY, *PLAIN, divmod])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operators_with_every_operand_from_both_sides(f, other, dtype):
    x = np.abs(X).astype(dtype)
    v = variable(x)
    same(f(v, other), f(x, other))
    same(f(other, v), f(other, x))
    for result in (f(v, other), f(other, v)):
        if f in BINARY:
            assert isinstance(result, ng.Variable)
            (g,) = v.tape.gradient(np.sum(result), [v], retain=True)
            assert g.dtype == dtype
        elif f is not divmod:
            assert not isinstance(result, ng.Variable)


@pytest.mark.parametrize("other", [2, 0.5, -1, np.float64(2), np.array([1, 2, 3]), np.array([0.5, 1.5, 2.0])], ids=repr)
def test_powers_from_both_sides(other):
    x = np.abs(X)
    same(variable(x) ** other, x**other)
    same(np.abs(other) ** variable(x), np.abs(other) ** x)


@pytest.mark.parametrize("f", [*BINARY, operator.pow])
def test_operators_between_variables(f):
    x, y = np.abs(X), np.array([1.0, 2.0, 3.0])
    tape = ng.Tape()
    v, w = tape.variable(x), tape.variable(y)
    same(f(v, w), f(x, y))
    (by_operator,) = ng.vjp(lambda y: f(x, y), y)[1](np.ones((2, 3)))
    tape = ng.Tape()
    w = tape.variable(y)
    ufunc = {operator.truediv: np.divide, operator.sub: np.subtract, operator.mul: np.multiply, operator.pow: np.power}
    out = {**ufunc, operator.add: np.add, operator.mod: np.remainder}[f](x, w)
    np.testing.assert_array_equal(by_operator, tape.gradient(out, [w], np.ones((2, 3)))[0])


def test_unary_operators():
    for f in (operator.neg, operator.pos, abs):
        same(f(variable()), f(X))


def test_operators_that_floats_do_not_have():
    for f in (operator.and_, operator.or_, operator.xor, operator.lshift):
        with pytest.raises(TypeError):
            f(variable(), 1)
    with pytest.raises(TypeError):
        ~variable()
    with pytest.raises(TypeError):
        variable() + "a"
    with pytest.raises(TypeError, match="NoneType"):
        variable() * None


def test_an_array_updated_in_place_with_a_variable_is_an_error():
    x = X.copy()
    with pytest.raises(TypeError, match="x \\+= y does too"):
        x += variable()
    with pytest.raises(TypeError):
        x[0] = variable()[0]
    np.testing.assert_array_equal(x, X)


def test_augmented_assignment_of_a_variable_makes_a_new_one():
    v = w = variable()
    v += 1
    v *= 2
    assert np.array_equal(w.value, X)
    assert np.array_equal(v.value, (X + 1) * 2)


METHODS = [
    ("sum",), ("sum", 0), ("sum", (0, 1)), ("sum", 1, np.float64), ("prod", 1), ("mean",), ("mean", -1), ("var", 0),
    ("std", None, None, None, 1), ("max",), ("max", 1), ("min", 0), ("cumsum",), ("cumsum", 1), ("cumprod", 0),
    ("clip", -1, 1), ("clip", 0.0), ("ravel",), ("ravel", "F"), ("flatten",), ("flatten", "F"), ("reshape", 3, 2),
    ("reshape", (3, 2)), ("reshape", -1), ("transpose",), ("transpose", 1, 0), ("transpose", (1, 0)),
    ("transpose", None), ("swapaxes", 0, 1), ("squeeze",), ("conj",), ("conjugate",), ("copy",), ("astype", np.float32),
    ("dot", np.ones(3)), ("repeat", 2), ("repeat", 2, 1), ("take", [0, 5]), ("take", [1, 0], 1), ("trace",),
    ("trace", 1), ("diagonal",), ("compress", [True, False, True], 1),
]  # fmt: skip


@pytest.mark.parametrize("call", METHODS, ids=repr)
def test_differentiable_methods(call):
    name, *args = call
    v = variable()
    out = getattr(v, name)(*args)
    assert isinstance(out, ng.Variable)
    same(out, getattr(X, name)(*args))
    (g,) = v.tape.gradient(out, [v], np.ones(out.shape, out.dtype))
    assert g.shape == X.shape


PLAIN_METHODS = [
    ("all",), ("any", 0), ("argmax",), ("argmax", 1), ("argmin", 0), ("argsort",), ("argsort", 0), ("argpartition", 1),
    ("nonzero",), ("round",), ("round", 1),
]  # fmt: skip


@pytest.mark.parametrize("call", PLAIN_METHODS, ids=repr)
def test_methods_that_give_plain_arrays(call):
    name, *args = call
    got = getattr(variable(), name)(*args)
    assert not isinstance(got, ng.Variable)
    same(got, getattr(X, name)(*args))


def test_searchsorted_of_a_sorted_variable():
    assert variable(np.array([1.0, 2.0, 3.0])).searchsorted([2.0, 5.0]).tolist() == [1, 3]


def test_keywords_of_methods():
    v = variable()
    for name, keywords in [
        ("sum", {"axis": 1, "keepdims": True, "where": X > 0, "initial": 1.0}), ("mean", {"axis": 0, "where": X > -1}),
        ("var", {"ddof": 1, "keepdims": True}), ("std", {"axis": 1, "ddof": 1}), ("max", {"initial": 1.0, "axis": 0}),
        ("clip", {"max": 1.0}), ("clip", {"min": 0.0, "max": 1.0}), ("sum", {"out": None}),
    ]:  # fmt: skip
        np.testing.assert_allclose(getattr(v, name)(**keywords).value, getattr(X, name)(**keywords))
    with pytest.raises(TypeError, match="out="):
        v.sum(out=np.empty(()))


def test_attributes():
    v = variable()
    for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "T", "mT", "real", "imag"):
        same(getattr(v, name), getattr(X, name))
    assert list(ng.stop_gradient(list(v.flat))) == list(X.flat)
    assert isinstance(v.T, ng.Variable)
    assert v.flags.c_contiguous
    assert v.device == "cpu"
    assert v.to_device("cpu") is v
    assert 3.0 in v
    assert 7.0 not in v


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (("sort",), "np.sort"), (("partition", 1), "np.partition"), (("fill", 0.0), "np.full"),
        (("put", [0], 1.0), "ng.set_at"), (("resize", 6), "np.reshape"),
    ],
)  # fmt: skip
def test_methods_that_work_in_place_say_what_to_use(call, instead):
    name, *args = call
    with pytest.raises(TypeError, match=instead):
        getattr(variable(), name)(*args)


@pytest.mark.parametrize("name", ["view", "tobytes", "tolist", "item", "dumps"])
def test_methods_that_hand_out_memory_say_so(name):
    with pytest.raises(TypeError, match=r"x\.value"):
        getattr(variable(), name)()


def test_every_method_of_ndarray_is_accounted_for():
    names = {name for name in dir(np.ndarray) if not name.startswith("_") and hasattr(X, name)}
    missing = {name for name in names if not hasattr(ng.Variable, name)}
    memory, integers = {"base", "ctypes", "data", "setflags"}, {"choose"}
    assert missing - {"tostring"} == memory | integers


def test_a_single_element_as_a_scalar():
    assert variable(np.array([[2.0]])).reshape(()).shape == ()


def test_copies_share_nothing_and_flow_back():
    v = variable()
    w = v.copy()
    assert not np.shares_memory(w.value, v.value)
    assert np.array_equal(v.tape.gradient(np.sum(w), [v])[0], np.ones(X.shape))


def test_python_functions_that_need_a_number_are_errors():
    v = variable(np.array(2.0))
    for f in (math.sqrt, float, int, complex, math.floor):
        with pytest.raises(TypeError):
            f(v)


def test_operators_run_on_nested_tapes():
    f = lambda x: np.sum((2 * x**3 - x / 4) * x)
    second = ng.grad(lambda x: np.sum(ng.grad(f)(x)))(X)
    np.testing.assert_allclose(second, 24 * X**2 - 0.5)
