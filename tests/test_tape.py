"""The laws of the tape: order, fan-out, memory, release, ownership of gradients, threads."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng


def test_a_gradient_by_hand():
    tape = ng.Tape()
    x, y = tape.variable([1.0, 2.0], name="x"), tape.variable(3.0)
    gx, gy = tape.gradient(np.sum(x * x * y), [x, y])
    np.testing.assert_array_equal(gx, [6.0, 12.0])
    np.testing.assert_array_equal(gy, 5.0)


def test_fan_out_adds_up():
    def f(a, b):
        c, e = a + b, a * b
        return (c + e) + c * e

    tape = ng.Tape()
    a, b = tape.variable(2.0), tape.variable(3.0)
    assert tape.gradient(f(a, b), [a, b]) == [25.0, 19.0]


def test_a_value_used_twice_and_an_operand_with_itself():
    tape = ng.Tape()
    x = tape.variable(np.array([1.0, -2.0]))
    (g,) = tape.gradient(np.sum(x + x + x * x - x / x), [x])
    np.testing.assert_array_equal(g, [4.0, -2.0])


def test_a_diamond_is_linear_in_its_length():
    tape = ng.Tape()
    x = x0 = tape.variable(1.0)
    for _ in range(400):  # 2**400 paths
        x = x * 0.5 + x * 0.5
    assert tape.gradient(x, [x0]) == [1.0]


def test_an_input_that_does_not_matter_has_a_zero_gradient():
    tape = ng.Tape()
    x, unused = tape.variable(np.ones(2)), tape.variable(np.ones((2, 3), np.float32))
    _, g = tape.gradient(np.sum(x), [x, unused])
    assert g.shape == (2, 3)
    assert g.dtype == np.float32
    assert not g.any()


def test_an_input_made_after_the_output_has_a_zero_gradient():
    tape = ng.Tape()
    x = tape.variable(2.0)
    y = x * x
    later = x * 3.0
    assert tape.gradient(y, [later, x]) == [0.0, 4.0]


def test_the_gradient_of_an_intermediate_value_and_of_the_output_itself():
    tape = ng.Tape()
    x = tape.variable(2.0)
    y = x * x
    z = y * 3.0
    assert tape.gradient(z, [z, y, x]) == [1.0, 3.0, 12.0]


def test_a_chain_of_100_000_records_needs_no_recursion():
    tape = ng.Tape()
    x = x0 = tape.variable(1.0)
    for _ in range(50_000):
        x = x * 1.0 + 0.0
    assert len(tape.records) == 100_001
    assert tape.gradient(x, [x0]) == [1.0]


def test_the_sweep_frees_what_it_has_passed():
    """A chain of 60 records over 8 MB arrays, of which every third keeps its result, peaks at 22 arrays."""
    size = 1_000_000
    a, b = np.full(size, 1.01), np.full(size, 0.01)

    def chain(x):
        for _ in range(20):
            x = np.tanh(x * a + b)
        return np.sum(x)

    tracemalloc.start()
    try:
        g = ng.grad(chain)(a)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    x, slope = a, np.ones(size)
    for _ in range(20):
        x = np.tanh(x * a + b)
        slope *= (1 - x * x) * a
    np.testing.assert_allclose(g, slope, rtol=1e-12)
    assert peak <= 22.01 * 8 * size  # the hundredth: 60 records' bookkeeping


def test_no_reference_cycles_keep_a_tape_alive():
    gc.disable()
    try:
        tape = ng.Tape()
        x = tape.variable(np.ones(3))
        y = np.sum(x * x)
        gone = weakref.ref(tape)
        tape.gradient(y, [x])
        del tape, x, y
        assert gone() is None
    finally:
        gc.enable()


class TestRelease:
    def test_a_second_gradient_is_a_clear_error(self):
        tape = ng.Tape()
        x = tape.variable(1.0)
        y = x * x
        tape.gradient(y, [x])
        with pytest.raises(ng.ReleasedTapeError, match="retain=True") as error:
            tape.gradient(y, [x])
        assert error.value.code == "released-tape"

    def test_an_operand_from_a_released_tape_is_refused_and_nothing_is_recorded(self):
        old = ng.Tape()
        x = old.variable(1.0)
        old.gradient(x * x, [x])
        new = ng.Tape()
        z = new.variable(2.0)
        for use in (lambda: x * 2.0, lambda: np.exp(x), lambda: x * z, lambda: z + x, lambda: old.variable(1.0)):
            with pytest.raises(ng.ReleasedTapeError):
                use()
        assert len(new.records) == 1
        assert old.records == []

    def test_retain_keeps_records_and_adjoints(self):
        tape = ng.Tape()
        x = tape.variable(3.0)
        y = x * x
        assert tape.gradient(y, [x], retain=True) == tape.gradient(y, [x], retain=True) == [6.0]
        assert tape.adjoints == {0: 6.0, 1: 1.0}
        z = y * x  # and the tape goes on
        assert tape.gradient(z, [x]) == [27.0]

    def test_results_do_not_alias_the_retained_adjoints(self):
        tape = ng.Tape()
        x = tape.variable(np.ones(3))
        (g,) = tape.gradient(np.sum(x * 2.0), [x], retain=True)
        g[:] = 99.0
        np.testing.assert_array_equal(tape.adjoints[0], 2.0)


class TestOwnership:
    def test_gradients_share_no_memory(self):
        cotangent = np.ones((2, 3))
        tape = ng.Tape()
        x, y = tape.variable(np.ones((2, 3))), tape.variable(np.ones((2, 3)))
        grads = tape.gradient(x + y, [x, y, x], cotangent)
        grads.append(cotangent)
        for i, a in enumerate(grads):
            assert a.flags.writeable
            assert a.flags.c_contiguous
            assert not any(np.shares_memory(a, b) for b in grads[i + 1 :])

    def test_views_come_back_as_arrays_of_their_own(self):
        tape = ng.Tape()
        x = tape.variable(np.ones((2, 3)))
        (g,) = tape.gradient(np.sum(x.T), [x])
        assert g.flags.writeable
        assert g.flags.owndata

    def test_inputs_and_cotangents_are_left_alone(self):
        x0, cotangent = np.arange(3.0), np.arange(3.0) + 1
        x0.setflags(write=False)
        before = cotangent.copy()
        tape = ng.Tape()
        x = tape.variable(x0)
        tape.gradient(x + x + x + x, [x], cotangent)
        np.testing.assert_array_equal(cotangent, before)

    def test_adding_never_writes_into_an_array_that_another_consumer_holds(self):
        tape = ng.Tape()
        x, y = tape.variable(np.ones(2)), tape.variable(np.ones(2))
        s = x + y  # one cotangent array is handed to both
        gx, gy = tape.gradient(np.sum(s + x + x + x), [x, y])
        np.testing.assert_array_equal(gx, 4.0)
        np.testing.assert_array_equal(gy, 1.0)


class TestErrors:
    def test_a_non_scalar_output_needs_a_cotangent(self):
        tape = ng.Tape()
        x = tape.variable(np.ones((2, 3)))
        with pytest.raises(ValueError, match=r"shape \(2, 3\) needs a cotangent"):
            tape.gradient(x * 2, [x])

    def test_a_cotangent_of_the_wrong_shape(self):
        tape = ng.Tape()
        x = tape.variable(np.ones((2, 3)))
        y = x * 2
        with pytest.raises(ValueError, match=r"cotangent has shape \(3,\), but the output has shape \(2, 3\)"):
            tape.gradient(y, [x], np.ones(3))
        assert not tape.released  # nothing is half-done

    def test_variables_of_other_tapes_and_plain_arrays(self):
        tape, other = ng.Tape(), ng.Tape()
        x, z = tape.variable(1.0), other.variable(1.0)
        y = x * x
        with pytest.raises(TypeError, match="not a Variable of another"):
            tape.gradient(y, [z])
        with pytest.raises(TypeError, match="not a ndarray"):
            tape.gradient(y, [np.ones(2)])
        with pytest.raises(TypeError, match="not a float"):
            tape.gradient(2.0, [x])
        with pytest.raises(TypeError, match="list of Variables"):
            tape.gradient(y, x)

    @pytest.mark.parametrize("bad", [1, [1, 2], np.ones(2, bool), 1j, np.array(["a"]), np.array([None])])
    def test_only_floats_become_variables(self, bad):
        with pytest.raises(TypeError, match="must be a float array"):
            ng.Tape().variable(bad, name="tokens")

    def test_only_older_variables_become_variables(self):
        old, new = ng.Tape(), ng.Tape()
        assert new.variable(old.variable(1.0)).value.value == 1.0
        with pytest.raises(ValueError, match="older tape"):
            old.variable(new.variable(1.0))

    def test_complex_results_are_refused_by_name(self):
        x = ng.Tape().variable(np.ones(2))
        with pytest.raises(TypeError, match="complex"):
            np.multiply(x, 1j)

    def test_a_pullback_of_the_wrong_shape_names_its_primitive(self):
        @ng.primitive
        def double(x):
            return 2 * x

        double.defvjp(lambda out, x: lambda g: np.ones(5))
        tape = ng.Tape()
        x = tape.variable(np.ones(3))
        with pytest.raises(ValueError, match=r"pullback of double gave shape \(5,\) for an argument of shape \(3,\)"):
            tape.gradient(np.sum(double(x)), [x])


class TestDtypes:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
    def test_gradients_have_their_arguments_dtype(self, dtype):
        tape = ng.Tape()
        x = tape.variable(np.ones(3, dtype))
        y = np.sum(x * 2.0 + 1)
        assert y.dtype == dtype
        (g,) = tape.gradient(y, [x])
        assert g.dtype == dtype

    def test_mixed_precision_comes_back_to_each_argument(self):
        tape = ng.Tape()
        x, y = tape.variable(np.ones(3, np.float32)), tape.variable(np.ones(3))
        gx, gy = tape.gradient(np.sum(x * y), [x, y])
        assert (gx.dtype, gy.dtype) == (np.float32, np.float64)


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(0, 3), max_size=3),
    data=st.data(),
)
def test_broadcast_arguments_get_gradients_of_their_own_shape(shape, data):
    other = [data.draw(st.sampled_from([n, 1])) for n in shape][data.draw(st.integers(0, len(shape))) :]
    tape = ng.Tape()
    x, y = tape.variable(np.full(shape, 2.0)), tape.variable(np.full(other, 3.0))
    gx, gy = tape.gradient(x * y, [x, y], np.ones(shape))
    np.testing.assert_array_equal(gx, np.full(shape, 3.0))
    assert gy.shape == tuple(other)
    if gy.size:
        np.testing.assert_array_equal(gy, 2.0 * np.prod(shape) / gy.size)


def test_threads_with_tapes_of_their_own():
    def work(seed, results):
        x = np.random.default_rng(seed).normal(size=5)
        f = lambda x: np.sum(np.tanh(x) * x)
        results[seed] = [ng.grad(f)(x), ng.grad(lambda x: np.sum(ng.grad(f)(x) ** 2))(x)]

    alone, together = {}, {}
    for seed in range(8):
        work(seed, alone)
    threads = [threading.Thread(target=work, args=(seed, together)) for seed in range(8) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed in range(8):
        np.testing.assert_array_equal(together[seed], alone[seed])


class TestRefusals:
    """Found by people who tried to break it."""

    @pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
    @pytest.mark.parametrize("kind", [np.ma.masked_array, np.matrix])
    def test_arrays_with_operations_of_their_own(self, kind):
        m = kind([[1.0, 2.0], [3.0, 4.0]])
        with pytest.raises(TypeError, match=r"x is a (MaskedArray|matrix).*plain array"):
            ng.grad(lambda x: np.sum(x * x))(m)
        with pytest.raises(TypeError, match=r"multiply gave a (MaskedArray|matrix)"):
            ng.grad(lambda x: np.sum(x * m))(np.ones((2, 2)))

    def test_a_file_mapped_to_memory_is_an_array(self, tmp_path):
        m = np.memmap(tmp_path / "m", float, "w+", shape=(3,))
        m[:] = [1, 2, 3]
        np.testing.assert_array_equal(ng.grad(lambda x: np.sum(x * m))(m), [1, 2, 3])

    @pytest.mark.parametrize("bad", [None, 1j, "a"])
    def test_pullbacks_that_give_no_real_numbers(self, bad):
        @ng.primitive
        def double(x):
            return 2 * x

        double.defvjp(lambda out, x: lambda g: bad)
        with pytest.raises(TypeError, match=r"pullback of double gave .* no array of real numbers"):
            ng.grad(double)(3.0)

    def test_complex_cotangents_and_tangents(self):
        with pytest.raises(TypeError, match="real numbers, not complex128"):
            ng.vjp(np.exp, np.ones(2))[1](np.array([1j, 2]))
        with pytest.raises(TypeError, match="real numbers, not complex128"):
            ng.jvp(np.exp, (np.ones(2),), (np.array([1j, 2]),))

    def test_a_string_is_no_scalar(self):
        with pytest.raises(ValueError, match="returned a str"):
            ng.grad(lambda x: "abc")(1.0)

    def test_tangents_of_constants_have_their_dtype(self):
        _, tangent = ng.jvp(lambda x: (x, np.ones(2, np.float32)), (np.float32(1),), (np.float32(1),))
        assert {t.dtype for t in tangent} == {np.dtype(np.float32)}
