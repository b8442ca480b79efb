"""Primitives, fused primitives and their registration."""

import pydoc
import types

import numpy as np
import pytest
from oracle import differences

import npgrad as ng
from npgrad.primitive import PRIMITIVES


@pytest.fixture(autouse=True)
def _forget_new_primitives():
    count = len(PRIMITIVES)
    yield
    del PRIMITIVES[count:]


def make_power():
    @ng.primitive
    def power(x, exponent=2.0, *, scale=1.0):
        return scale * x**exponent

    power.defvjp(
        lambda out, x, exponent=2.0, *, scale=1.0: lambda g: g * scale * exponent * x ** (exponent - 1),
        lambda out, x, exponent=2.0, *, scale=1.0: lambda g: g * out * np.log(x),
    )
    return power


def test_on_plain_arrays_a_primitive_is_its_forward():
    out = make_power()(np.array([2.0]), 3.0)
    assert type(out) is np.ndarray
    assert out == 8.0


def test_arguments_by_keyword_are_differentiated_too():
    power = make_power()
    for call in (lambda x, e: power(x, e, scale=2.0), lambda x, e: power(exponent=e, x=x, scale=2.0)):
        gx, ge = ng.grad(call, (0, 1))(3.0, 2.0)
        np.testing.assert_allclose([gx, ge], [12.0, 18.0 * np.log(3.0)])


def test_a_primitive_shows_its_name_and_documentation():
    @ng.primitive
    def f(x):
        """Twice x."""
        return 2 * x

    assert (str(f), repr(f), f.__name__, f.__doc__) == ("f", "f(x)", "f", "Twice x.")
    assert repr(make_power()) == "power(x, exponent=2.0, *, scale=1.0)"


def test_help_shows_every_parameter():
    shown = pydoc.plain(pydoc.render_doc(ng.self_attention)).split()
    parameters = ["wo,", "bq=None,", "bo=None,", "*,", "heads,", "tables=None,", "layout='adjacent',", "mask=None,"]
    assert all(p in shown for p in parameters)


def test_a_primitive_in_a_class_is_no_method():
    class Layer:
        power = make_power()

    assert Layer().power(3.0) == 9.0


def test_a_variable_where_there_is_no_rule_is_an_error_not_a_constant():
    @ng.primitive
    def f(x, table, *, bias=0.0):
        return x * table + bias

    f.defvjp(lambda out, x, table, *, bias=0.0: lambda g: g * table)
    tape = ng.Tape()
    x = tape.variable(1.0)
    for bad in (lambda: f(1.0, x), lambda: f(x, x), lambda: f(x, 1.0, bias=x)):
        with pytest.raises(TypeError, match=r"f has no derivative with respect to argument (1|bias).*stop_gradient"):
            bad()
    assert len(tape.records) == 1


def test_rules_are_checked_when_they_are_registered():
    @ng.primitive
    def f(x, y, *, scale):
        return x * y * scale

    with pytest.raises(TypeError, match="rule of f must accept"):
        f.defvjp(lambda out, x: lambda g: g)
    with pytest.raises(TypeError, match="rule of f must accept"):
        f.defvjp(lambda out, x, y: lambda g: g)
    with pytest.raises(TypeError, match="rule of f must accept"):

        @f.defvjp
        def _(x, y, *, scale):
            return lambda g: g

    f.defvjp(None, lambda out, x, y, *, scale: lambda g: g * x * scale)
    assert ng.grad(lambda y: f(2.0, y, scale=3.0))(1.0) == 6.0


def test_every_rule_in_the_tables_has_the_signature_of_its_function():
    checked = 0
    for primitive in PRIMITIVES:
        exact = isinstance(primitive.forward, (np.ufunc, types.FunctionType))  # NumPy's others differ by version
        if exact and type(primitive.rules) is tuple:
            primitive.defvjp(*primitive.rules)  # which refuses others
            checked += len(primitive.rules)
    assert checked > 20


def test_a_rule_for_any_number_of_arguments():
    @ng.primitive
    def total(*arrays):
        return sum(arrays)

    total.defvjp_each(lambda i, out, *arrays: lambda g: g * (i + 1))
    assert ng.grad(lambda x, y, z: total(x, y, z), (0, 1, 2))(1.0, 1.0, 1.0) == (1.0, 2.0, 3.0)


def test_a_forward_that_returns_a_plain_number():
    @ng.primitive
    def first(x):
        return float(x[0])

    first.defvjp(lambda out, x: lambda g: g * np.eye(len(x))[0])
    np.testing.assert_array_equal(ng.grad(first)(np.ones(3)), [1.0, 0.0, 0.0])


def test_a_pullback_that_returns_a_plain_number():
    @ng.primitive
    def triple(x):
        return 3 * x

    triple.defvjp(lambda out, x: lambda g: 3.0)
    assert ng.grad(triple)(np.float32(1.0)).dtype == np.float32


class TestFused:
    @staticmethod
    def make(calls=None):
        def reference(x, y, n, *, scale=1.0):
            return scale * np.tanh(x) * y * n

        @ng.fused(reference)
        def product(x, y, n, *, scale=1.0):
            if calls is not None:
                calls.append("fused")
            t = np.tanh(x)
            return scale * t * y * n, lambda g: (g * scale * (1 - t * t) * y * n, g * scale * t * n, None)

        return product

    def test_value_and_gradients(self):
        x, y = np.array([0.3, -0.7]), np.array([1.5, 2.5])
        f = lambda x, y: np.sum(self.make()(x, y, 2, scale=3.0))
        for got, expected in zip(ng.grad(f, (0, 1))(x, y), differences(f, (x, y))):
            np.testing.assert_allclose(got, expected, rtol=1e-11)

    def test_the_fused_form_runs_on_one_tape_and_the_reference_when_tapes_are_nested(self):
        calls = []
        product = self.make(calls)
        assert product(1.0, 1.0, 1) == np.tanh(1.0)
        ng.grad(lambda x: product(x, 1.0, 1))(1.0)
        assert calls == ["fused"] * 2
        ng.grad(lambda x: ng.grad(lambda y: product(x, y, 1))(x))(1.0)
        assert calls == ["fused"] * 2

    def test_third_order(self):
        f = lambda x: self.make()(x, x, 1)
        third = ng.grad(ng.grad(ng.grad(f)))(0.4)
        expected = differences(lambda x: ng.grad(ng.grad(lambda x: np.tanh(x) * x))(x), (np.array(0.4),))[0]
        np.testing.assert_allclose(third, expected, rtol=1e-9)

    def test_a_cotangent_that_is_itself_differentiated(self):
        product = self.make()
        inner = lambda y, x: np.sum(ng.vjp(lambda x: product(x, 2.0, 1), x)[1](y)[0])  # linear in y
        np.testing.assert_allclose(ng.grad(inner)(np.array([3.0]), np.array([0.5])), [2 * (1 - np.tanh(0.5) ** 2)])

    def test_a_gradient_of_a_gradient_in_another_argument(self):
        product = self.make()
        f = lambda x: ng.grad(lambda w: product(w, 1.0, 1) * x)(0.5)  # the fused record sees w alone
        np.testing.assert_allclose(ng.grad(f)(2.0), 1 - np.tanh(0.5) ** 2)

    def test_forward_mode(self):
        product = self.make()
        out, tangent = ng.jvp(lambda x, y: product(x, y, 2), (0.5, 3.0), (1.0, 10.0))
        np.testing.assert_allclose(out, 6 * np.tanh(0.5))
        np.testing.assert_allclose(tangent, 6 * (1 - np.tanh(0.5) ** 2) + 20 * np.tanh(0.5))

    def test_a_variable_where_the_pullback_gives_none(self):
        product = self.make()
        with pytest.raises(TypeError, match="no derivative with respect to argument 2"):
            ng.grad(lambda n: product(1.0, 1.0, n))(1.0)

    def test_it_has_the_name_of_the_form_that_runs_and_the_references_documentation(self):
        assert str(self.make()) == "product"

    def test_a_reference_left_out(self):
        half = ng.fused(lambda x: x)  # as one writes @ng.primitive
        with pytest.raises(TypeError, match=r"@ng\.fused\(reference\)"):
            half(np.ones(2))


def test_a_rule_that_returns_a_gradient_in_place_of_a_pullback():
    @ng.primitive
    def double(x):
        return 2 * x

    double.defvjp(lambda out, x: 2.0)
    with pytest.raises(TypeError, match="rule of double must return its pullback"):
        ng.grad(double)(1.0)
