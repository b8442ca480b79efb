"""Parts of a batch on threads: the whole batch's numbers, whatever the count of threads; memory that is kept."""

import platform
import threading

import numpy as np
import pytest

import npgrad as ng
from npgrad import parallel

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 4)), "b": [RNG.normal(size=4)], "scale": np.array(0.7)}
X, Y = RNG.normal(size=(5, 6, 3)), RNG.integers(0, 4, (5, 6))


def loss(params, x, y):
    return ng.cross_entropy(np.tanh(x @ params["w"]) * params["scale"] + params["b"][0], y)


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_parts_of_any_number_give_the_gradient_of_the_whole(parts):
    value, gradient = parallel.value_and_grad(loss, parts=parts)(PARAMS, X, Y)
    expected, expected_gradient = ng.value_and_grad(loss)(PARAMS, X, Y)
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    ng.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15), gradient, expected_gradient)


def test_the_numbers_do_not_depend_on_the_count_of_threads():
    found = [parallel.value_and_grad(loss, parts=3, threads=n)(PARAMS, X, Y) for n in (1, 2, 4)]
    for other in found[1:]:
        ng.tree.map(np.testing.assert_array_equal, other, found[0])


def test_parts_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=20)

    def f(w, x):
        meeting.wait()
        return np.mean(w * x)

    value, gradient = parallel.value_and_grad(f)(np.array(2.0), np.array([1.0, 3.0]))
    assert (value, gradient) == (4.0, 2.0)


def test_single_precision_stays_and_nothing_given_is_changed():
    params, x = ng.tree.map(np.float32, PARAMS), X.astype(np.float32)
    ng.tree.map(lambda p: p.setflags(write=False) if p.ndim else None, params)
    value, gradient = parallel.value_and_grad(loss)(params, x, Y)
    assert value.dtype == np.float32
    assert {g.dtype for g in ng.tree.leaves(gradient)} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(x, X.astype(np.float32))


def test_debug_mode_and_error_states_hold_in_threads():
    def f(w, x):
        return np.mean(np.log(w * x))

    batch = np.array([1.0, 0.0])
    with np.errstate(divide="ignore", invalid="ignore"):
        value, _ = parallel.value_and_grad(f)(np.array(1.0), batch)
        assert value == -np.inf
        with ng.debug(), pytest.raises(ng.DebugError):
            parallel.value_and_grad(f)(np.array(1.0), batch)


def test_errors_say_what_to_do():
    f = parallel.value_and_grad(loss)
    with pytest.raises(ValueError, match="one number of rows"):
        f(PARAMS, X, Y[:3])
    with pytest.raises(ValueError, match="at least 1"):
        f(PARAMS, X[:0], Y[:0])
    with pytest.raises(ValueError, match="missing"):
        f(PARAMS)
    with pytest.raises(ValueError, match="at least 1, not 0 and 2"):
        parallel.value_and_grad(loss, parts=0)
    with pytest.raises(TypeError, match="one thread"):
        ng.grad(lambda w: parallel.value_and_grad(lambda w, x: np.mean(w * x))(w, np.ones(2))[0])(1.0)


def test_an_error_in_a_part_reaches_the_caller():
    with pytest.raises(IndexError, match="targets"):
        parallel.value_and_grad(loss)(PARAMS, X, np.where(np.arange(5)[:, None] == 4, 9, Y))


def test_memory_is_kept_where_the_c_library_is_glibc():
    assert parallel.keep_memory() == (platform.libc_ver()[0] == "glibc")
    assert np.ones(10**6).sum() == 10**6
