"""Parts of a batch on threads, and sums over processes: the whole batch's numbers, whoever computes; kept memory."""

import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

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


def test_threads_are_used_while_they_are_quicker(monkeypatch):
    now, used = 0.0, set()

    def f(w, x):
        used.add(threading.current_thread())
        return np.mean(w * x)

    def clock():
        nonlocal now
        now += 1 if (len(used) == 2) is quicker else 2
        return now

    monkeypatch.setattr(parallel.time, "perf_counter", clock)
    for quicker in (True, False):
        both, counts = parallel.value_and_grad(f), []
        for _ in range(10):
            used.clear()
            value, gradient = both(np.array(2.0), np.array([1.0, 3.0, 5.0]))
            assert (float(value), float(gradient)) == (6.0, 3.0)
            counts.append(len(used))
        assert counts == [2, 1] * 3 + [2 if quicker else 1] * 4


def test_more_parts_than_threads_are_shared_out():
    threads = []

    def f(w, x):
        threads.append((float(x[0]), threading.current_thread() is threading.main_thread()))
        return np.mean(w * x)

    assert parallel.value_and_grad(f, parts=5)(np.array(2.0), np.arange(5.0)) == (4.0, 2.0)
    assert sorted(threads) == [(0, True), (1, False), (2, True), (3, False), (4, True)]


def test_an_error_waits_for_the_other_parts():
    begun, ended = threading.Event(), []

    def f(w, x):
        if threading.current_thread() is threading.main_thread():
            begun.wait(20)
            raise RuntimeError("the first part")
        begun.set()
        ended.append(True)
        return np.mean(w * x)

    with pytest.raises(RuntimeError, match="the first part"):
        parallel.value_and_grad(f)(np.array(2.0), np.ones(2))
    assert ended == [True]


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
    with pytest.raises(TypeError, match="only params are given: after them come the batch's arrays"):
        f(PARAMS)
    with pytest.raises(TypeError, match="y is a float: params come first, and after them only arrays with a row"):
        f(PARAMS, X, 0.5)
    with pytest.raises(TypeError, match=r"y is a ndarray: .* bind the rest to f beforehand, with functools\.partial"):
        f(PARAMS, X, np.array(0.5))
    with pytest.raises(TypeError, match="x is a dict: params come first"):
        f(X, PARAMS, Y)
    with pytest.raises(TypeError, match="x is a tuple: params come first"):
        f(PARAMS, (X, Y))
    with pytest.raises(TypeError, match="y= is given by keyword, but only params and the batch's arrays"):
        f(PARAMS, X, y=Y)
    with pytest.raises(ValueError, match="at least 1, not 0 and 2"):
        parallel.value_and_grad(loss, parts=0)
    with pytest.raises(TypeError, match="one thread"):
        ng.grad(lambda w: parallel.value_and_grad(lambda w, x: np.mean(w * x))(w, np.ones(2))[0])(1.0)


def test_the_sums_of_parts_are_averaged_as_the_documentation_says():
    value, gradient = parallel.value_and_grad(lambda w, x: np.sum(w * x))(np.array(2.0), np.arange(4.0))
    assert (float(value), float(gradient)) == (6.0, 3.0)


def test_an_error_in_a_part_reaches_the_caller():
    with pytest.raises(IndexError, match="targets"):
        parallel.value_and_grad(loss)(PARAMS, X, np.where(np.arange(5)[:, None] == 4, 9, Y))


def test_memory_is_kept_where_the_c_library_is_glibc():
    assert parallel.keep_memory() == (platform.libc_ver()[0] == "glibc")
    assert np.ones(10**6).sum() == 10**6


class Rank:
    """MPI's communicator, of threads that stand for its processes."""

    def __init__(self, rank, buffers, meeting):
        self.rank, self.size, self.buffers, self.meeting, self.messages = rank, len(buffers), buffers, meeting, 0

    def Allreduce(self, mine, total):
        self.messages += 1
        self.buffers[self.rank] = mine
        self.meeting.wait()
        total[...] = sum(self.buffers)
        self.meeting.wait()


def on_ranks(size, f):
    """f(comm) of each of that many ranks, at the same time."""
    buffers, meeting = [None] * size, threading.Barrier(size, timeout=20)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(f, [Rank(rank, buffers, meeting) for rank in range(size)]))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_trees_are_summed_over_the_ranks_in_one_message(size):
    def summed(comm):
        rows = np.arange(6, dtype=np.float32).reshape(2, 3).T * (comm.rank + 1)
        rows.setflags(write=False)
        tree = {"a": [rows, np.float32(comm.rank)], "none": None, "empty": np.ones((0, 2))}
        found = parallel.all_reduce(comm, {**tree, "any": comm.rank == 1})
        assert comm.messages == (size > 1)
        return found

    for found in on_ranks(size, summed):
        rows, scalar = found["a"]
        np.testing.assert_array_equal(rows, np.arange(6).reshape(2, 3).T * sum(range(1, size + 1)))
        assert (rows.dtype, scalar.dtype, scalar) == (np.float32, np.float32, sum(range(size)))
        assert (found["none"], found["empty"].shape) == (None, (0, 2))
        assert bool(found["any"]) == (size > 1)


@pytest.mark.parametrize("first", [2**53 + 1, np.uint64(2**62 + 1), np.int8(3)], ids=str)
def test_integers_are_summed_exactly(first):
    others = {"w": np.ones(2, np.float32), "count": 7}
    for found in on_ranks(3, lambda comm: parallel.all_reduce(comm, {**others, "n": [first, np.array([first - 1])]})):
        assert (found["w"].tolist(), found["count"]) == ([3.0, 3.0], 21)
        n, (m,) = found["n"]
        assert (int(n), int(m), n.dtype) == (3 * int(first), 3 * int(first) - 3, np.asarray(first).dtype)


def test_what_is_no_number_is_not_summed():
    for leaf in ("a", object()):
        with pytest.raises(TypeError, match=r"tree\['a'\] is of .*, but only numbers can be summed"):
            on_ranks(2, lambda comm, leaf=leaf: parallel.all_reduce(comm, {"a": leaf}))


def test_single_precision_travels_as_such():
    def summed(comm):
        parallel.all_reduce(comm, [np.ones(3, np.float32), True])
        return comm.buffers[comm.rank].dtype

    assert on_ranks(2, summed) == [np.float32] * 2


def test_two_ranks_have_the_bits_of_two_parts():
    params, x = ng.tree.map(np.float32, PARAMS), X.astype(np.float32)
    expected = parallel.value_and_grad(loss)(params, x, Y)

    def shared(comm):
        start, end = (len(x) * (comm.rank + i) // 2 for i in (0, 1))
        found = ng.value_and_grad(loss)(params, x[start:end], Y[start:end])
        return parallel.all_reduce(comm, ng.tree.map(lambda a: a * ((end - start) / len(x)), found))

    for found in on_ranks(2, shared):
        ng.tree.map(np.testing.assert_array_equal, found, expected)


def test_nothing_is_sent_for_nothing():
    assert on_ranks(2, lambda comm: (parallel.all_reduce(comm, {}), comm.messages)) == [({}, 0)] * 2


def test_a_forked_process_has_threads_of_its_own():
    code = (
        "import os, signal\n"
        "import numpy as np\n"
        "from npgrad import parallel\n"
        "f = parallel.value_and_grad(lambda w, x: np.mean(x @ w))\n"
        "run = lambda times: [f(np.ones(3), np.ones((8, 3)))[0] for _ in range(times)]\n"
        "run(1)\n"  # on threads
        "child = getattr(os, 'fork', lambda: 0)()\n"  # where there is no forking, it is enough that this runs
        "child or getattr(signal, 'alarm', abs)(60)\n"  # the child would wait for ever
        "print(run(6) if not child else os.waitpid(child, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("0", str([np.float64(3.0)] * 6))
