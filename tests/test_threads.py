"""Many threads with tapes of their own, nested ones too, get what one thread gets; registering meanwhile is safe."""

import concurrent.futures
import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import npgrad as ng
from npgrad.primitive import PRIMITIVES
from npgrad.variable import REGISTRY

THREADS, TAPES = 8, 1000


@pytest.fixture
def clean_registry():
    count, registry = len(PRIMITIVES), dict(REGISTRY)
    yield
    del PRIMITIVES[count:]
    REGISTRY.clear()
    REGISTRY.update(registry)


def f(x):
    return np.sum(ng.softmax(np.tanh(x)) * x) * x[0]


def results(thread):
    """A thousand gradients on inputs that differ, every 50th of a function that takes gradients itself."""
    rng = np.random.default_rng(thread)
    found = []
    for i in range(TAPES):
        x = rng.normal(size=3)
        g = ng.grad(lambda x: np.sum(ng.grad(f)(x) ** 2))(x) if i % 50 == 0 else ng.grad(f)(x)
        found.append(g)
    return np.array(found)


def test_threads_give_the_results_of_one():
    serial = [results(thread) for thread in range(THREADS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # many more switches than usual
    try:
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            parallel = list(pool.map(results, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)
    for a, b in zip(serial, parallel):
        np.testing.assert_array_equal(a, b)


def test_registering_while_in_use(clean_registry):
    """One thread registers primitives, and a NumPy function again and again; others go on getting right results."""
    expected, stop = ng.grad(f)(np.ones(3)), threading.Event()

    def use():
        count = 0
        while not stop.is_set() or count < 50:
            np.testing.assert_array_equal(ng.grad(f)(np.ones(3)), expected)
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        users = [pool.submit(use) for _ in range(3)]
        for i in range(300):
            cube = ng.primitive(lambda x: x**3)
            cube.defvjp(lambda out, x: lambda g: g * 3 * x**2)
            ng.differentiate(np.tanh, lambda out, x: lambda g: g * (1 - out**2))
            assert ng.grad(cube)(float(i)) == 3 * i**2
        stop.set()
        assert all(user.result() >= 50 for user in users)


def test_registering_twice_takes_the_last_and_breaks_no_tape(clean_registry):
    ng.differentiate(np.spacing, lambda out, x: lambda g: g * 1.0)
    tape = ng.Tape()
    x = tape.variable(1.0)
    y = np.spacing(x)
    ng.differentiate(np.spacing, lambda out, x: lambda g: g * 2.0)
    assert tape.gradient(y, [x])[0] == 1.0  # recorded before
    assert ng.grad(np.spacing)(1.0) == 2.0


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_variables_do_not_leave_their_tape_unnoticed(attempt):
    x = ng.Tape().variable(np.ones(3))
    with pytest.raises(TypeError, match=r"belongs to its tape and can't be copied or pickled; copy or pickle x\.value"):
        attempt(x)
    np.testing.assert_array_equal(attempt(x.value) if attempt is not pickle.dumps else x.value, np.ones(3))


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_brings_in_nothing_optional():
    code = "import sys, numpy; before = set(sys.modules); import npgrad; print(*(set(sys.modules) - before))"
    packages = {name.split(".")[0] for name in run(code)}
    assert packages - sys.stdlib_module_names == {"npgrad"}
    assert packages & {"pickle", "socket", "ssl", "http", "urllib", "multiprocessing", "asyncio"} == set()


def test_checking_and_showing_are_imported_when_they_are_asked_for():
    code = "import sys, npgrad as ng; {}; print(*(m for m in ('check', 'show') if f'npgrad.{{m}}' in sys.modules))"
    assert run(code.format("pass")) == []
    assert run(code.format("x = ng.Tape().variable(1.0); x * x; repr(x.tape); ng.supported()")) == []
    for use in ("ng.check_grads", "from npgrad import check_vjp", "ng.check.Report", "import npgrad.check"):
        assert run(code.format(use)) == ["check"], use
    for use in ("ng.WatchfulTape", "ng.show.table", "str(ng.Tape())", "ng.Tape.table", "from npgrad import *"):
        assert run(code.format(use)) == ["check", "show"], use
    assert run(code.format("ng.Tape().variable(1.0)._repr_html_()")) == ["check", "show"]


def test_the_modules_that_the_readme_names_need_no_import_of_their_own():
    code = "import sys, npgrad as ng; {}; print(*(m for m in ('decoder', 'parallel') if 'npgrad.' + m in sys.modules))"
    assert run(code.format("ng.optim.SGD, ng.tree.map, ng.check_grads")) == []
    assert run(code.format("ng.decoder.Config")) == ["decoder"]
    assert run(code.format("ng.parallel.value_and_grad")) == ["parallel"]


def test_what_is_imported_later_is_listed_and_the_rest_is_missing():
    later = "check", "check_grads", "check_vjp", "decoder", "parallel", "show", "WatchfulTape"
    assert run(f"import npgrad; print(set({later}) <= set(dir(npgrad)), hasattr(npgrad, 'shown'))") == ["True", "False"]


def test_everything_public_can_be_imported_with_warnings_as_errors():
    modules = "npgrad, npgrad.check, npgrad.decoder, npgrad.training, npgrad.show, npgrad.optim, npgrad.__main__"
    assert run(f"import {modules}; print(len(npgrad.__all__) > 20)") == ["True"]
