"""Debug mode stops at the first fault and names the record; outside it nothing changes."""

import threading

import numpy as np
import pytest

import npgrad as ng
from npgrad.check.audit import load_examples
from npgrad.debug import DebugTape
from npgrad.primitive import PRIMITIVES


@pytest.fixture(autouse=True)
def _quiet_and_clean():
    count = len(PRIMITIVES)
    with np.errstate(all="ignore"):
        yield
    del PRIMITIVES[count:]


def primitive_of(pullback):
    @ng.primitive
    def identity(x):
        return x * 1.0

    identity.defvjp(lambda out, x: pullback)
    return identity


def test_it_is_on_inside_the_block_alone():
    assert type(ng.Tape()) is ng.Tape
    with ng.debug():
        assert type(ng.Tape()) is DebugTape
        seen = []
        thread = threading.Thread(target=lambda: seen.append(type(ng.Tape())))
        thread.start()
        thread.join()
    assert seen == [ng.Tape]
    assert type(ng.Tape()) is ng.Tape


def test_right_code_gives_the_same_gradients():
    f = lambda x: np.sum(np.tanh(x) @ np.ones(3) * x[0, 0])
    x = np.random.default_rng(0).normal(size=(2, 3))
    with ng.debug():
        watched = ng.grad(f)(x)
        second = ng.grad(lambda x: np.sum(ng.grad(f)(x) ** 2))(x)
    np.testing.assert_array_equal(watched, ng.grad(f)(x))
    np.testing.assert_array_equal(second, ng.grad(lambda x: np.sum(ng.grad(f)(x) ** 2))(x))


def test_records_keep_their_source_line():
    with ng.debug():
        tape = ng.Tape()
        x = tape.variable(np.ones(2))
        np.exp(x)
    assert all(line.startswith("test_debug.py:") for line in tape.lines)
    assert int(tape.lines[1].split(":")[1]) == int(tape.lines[0].split(":")[1]) + 1


def test_the_first_bad_value_is_named():
    def f(x):
        y = x - 1.0
        z = np.log(y)
        return np.sum(z * 0.0)

    first = r"record %2 \(log\) at test_debug.py:\d+: its value is infinite at \(1,\)"
    with ng.debug(), pytest.raises(ng.DebugError, match=first):
        ng.grad(f)(np.array([2.0, 1.0]))
    with ng.debug(), pytest.raises(ng.DebugError, match=r"\(log\).*its value is NaN at \(0,\)"):
        ng.grad(f)(np.array([0.5, 2.0]))


def test_an_infinity_that_was_put_in_on_purpose_may_pass():
    scores = np.zeros((2, 2))
    with ng.debug():
        g = ng.grad(lambda s: np.sum(np.exp(np.where(np.eye(2) > 0, s, -np.inf))))(scores)
        np.testing.assert_array_equal(g, np.eye(2))
        ng.grad(lambda s: np.sum(ng.softmax(ng.causal_mask(s)) ** 2))(scores)


def test_a_where_with_a_bad_branch_is_shown_the_double_where():
    f = lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0))
    found = r"\(sqrt\).*adjoint is NaN at \(1,\).*np.where\(ok, f\(np.where"
    with ng.debug(), pytest.raises(ng.DebugError, match=found):
        ng.grad(f)(np.array([4.0, 0.0]))


def test_a_saved_array_that_changed():
    a = np.ones(3)
    with ng.debug():
        tape = ng.Tape()
        x = tape.variable(np.ones(3))
        y = np.sum(x * a)
        a[1] = 5.0
        with pytest.raises(ng.DebugError, match=r"record %1 \(multiply\).*'y'.*was changed after the forward"):
            tape.gradient(y, [x])


def test_a_pullback_that_changes_its_cotangent():
    def greedy(g):
        g *= 2
        return g

    with ng.debug(), pytest.raises(ng.DebugError, match=r"identity.*changed the cotangent"):
        ng.grad(lambda x: np.sum(np.square(primitive_of(greedy)(x))))(np.ones(3))


def test_a_fused_primitive_is_watched_too():
    @ng.fused(lambda x: x * 1.0)
    def broken(x):
        return x * 1.0, lambda g: (g / np.zeros(x.shape),)

    with ng.debug(), pytest.raises(ng.DebugError, match=r"adjoint is infinite at its only element"):
        ng.grad(broken)(1.0)


def test_a_pullback_that_changes_what_it_kept():
    kept = np.ones(3)

    def spent(g):
        found = g * kept
        kept[0] = 2.0
        return found

    with ng.debug(), pytest.raises(ng.DebugError, match=r"identity.*the array 'kept' .* was changed by it"):
        ng.grad(lambda x: np.sum(primitive_of(spent)(x)))(np.ones(3))


def gradient_of(pullback, x):
    tape = ng.Tape()
    v = tape.variable(x)
    y = primitive_of(pullback)(v)
    return tape.gradient(y, [v], np.ones(y.shape))[0]


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 3), (2, 3, 1), ()])
def test_a_pullback_of_another_shape(shape):
    words = r"record %1 \(identity\) at test_debug.py:\d+: its pullback gave shape .* for an argument of shape \(2, 3\)"
    with ng.debug(), pytest.raises(ng.DebugError, match=words):
        gradient_of(lambda g: np.ones(shape), np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, complex])
def test_a_pullback_of_another_dtype(dtype):
    words = rf"gave {np.dtype(dtype)} for an argument of float32 and a result of float32"
    with ng.debug(), pytest.raises(ng.DebugError, match=words):
        gradient_of(lambda g: np.ones(3, dtype), np.ones(3, np.float32))


def test_a_gradient_that_the_engine_will_sum_or_narrow_may_pass():
    with ng.debug():
        np.testing.assert_array_equal(gradient_of(lambda g: np.ones((4, 2, 3)), np.ones((2, 1))), np.full((2, 1), 12))
        g = ng.grad(lambda x: np.sum(x * np.ones(3)))(np.ones(3, np.float32))
    assert g.dtype == np.float32


def test_a_nan_that_comes_in_is_stopped_where_it_comes_in():
    with ng.debug(), pytest.raises(ng.DebugError, match=r"%0 \(variable p\['w'\]\) at .*: its value is NaN at \(1,\)"):
        ng.grad(lambda p: np.sum(p["w"]))({"w": np.array([1.0, np.nan])})
    with ng.debug(), pytest.raises(ng.DebugError, match=r"%1 \(multiply\) at .*: its value is NaN at \(0,\)"):
        ng.grad(lambda x: np.sum(x * np.array([np.nan, 1.0])))(np.ones(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_primitive_keeps_its_contract(dtype):
    """All declared examples, in both precisions, with a cotangent that has no zeros."""
    faults = {}
    for function, declared in load_examples().items():
        for example in declared:
            places = [i for i, a in enumerate(example.args) if getattr(a, "dtype", None) == np.float64]

            def call(*arrays, example=example, places=places):
                args = [*example.args]
                for i, array in zip(places, arrays):
                    args[i] = array
                return example.function(*args, **example.kwargs)

            arrays = [example.args[i].astype(dtype) for i in places]
            if any(np.isnan(a).any() for a in arrays):  # nansum and its kin
                continue
            try:
                with ng.debug():
                    out, pullback = ng.vjp(call, *arrays)
                    pullback(ng.tree.map(lambda y: np.linspace(0.5, 1.5, np.size(y)).reshape(np.shape(y)), out))
            except ng.DebugError as error:
                faults[str(function)] = str(error)
    assert faults == {}
