"""Formulas of the page: one for every primitive; the elementwise ones are computed and held against their rules."""

import re
import subprocess
import sys

import numpy as np
import pytest

import npgrad as ng
from npgrad.check.examples import positive
from npgrad.ops.activation import normal_cdf
from npgrad.primitive import PRIMITIVES
from npgrad.show.formulas import ELEMENTWISE, OTHERS, formula
from npgrad.show.page import page

SYMBOLS = {
    "−": "-", "·": "*", "^": "**", "²": "**2", "³": "**3", "½": "0.5", "√": "sqrt", "∛": "cbrt", "π": "pi", "≤": "<=",
    "≥": ">=", "[not c]": "[~c]", "ȳ": "dy", "[": "(", "]": ")", " = ": "==", "σ": "sigmoid", "Φ": "cdf",
    "φ": "density",
}  # fmt: skip
NAMES = {name: getattr(np, name) for name in (
    "sqrt", "cbrt", "pi", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh",
    "arccosh", "arctanh", "arctan2", "exp", "floor", "trunc", "sign", "abs",
)} | {
    "ln": np.log, "max": np.maximum, "min": np.minimum, "sigmoid": ng.sigmoid, "cdf": normal_cdf,
    "density": lambda x: np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
}  # fmt: skip
WORDS = {  # forward or pullback in words, or in functions that NumPy hasn't
    "made_finite", "tanh_slope", "mantissa", "where", "gelu[approximate='tanh']", "sinc_derivative", "i0", "unwrap",
}  # fmt: skip
COMPUTED = sorted(ELEMENTWISE.keys() - WORDS)
SHAPE = 3, 4


def compute(text, values):
    for symbol, python in SYMBOLS.items():
        text = text.replace(symbol, python)
    return eval(text, {"__builtins__": {}}, NAMES | values)


def samples(name, count):
    """Arguments off the middle of each function's domain, some of them equal, of both signs where there may be."""
    x, a, b = positive(*SHAPE, seed=1), positive(*SHAPE, seed=2), positive(*SHAPE, seed=3)
    if name in ("arcsin", "arccos", "arctanh"):
        return (x / 3 * np.where(a > 1, 1, -1),)
    if name == "arccosh":
        return (x + 1,)
    if name == "ldexp":
        return x - 1, np.arange(12).reshape(SHAPE) % 5
    if name == "clamp":
        return x, np.full(SHAPE, 0.8), np.full(SHAPE, 1.5)
    if name in ("power", "float_power", "log", "log2", "log10", "log1p", "sqrt", "cbrt"):
        return (a, b)[:count]
    if name == "heaviside":
        return np.where(x > 1, 0.0, x - 0.7), b
    if name in ("maximum", "minimum", "fmax", "fmin"):
        return a, np.where(x > 1, a, b)
    return (a - 1.2, b * np.where(x > 1, 1, -1))[:count]


def test_every_primitive_has_a_formula():
    listed = "from npgrad.primitive import PRIMITIVES; print(*PRIMITIVES)"  # alone: other tests register their own
    names = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 100
    assert [name for name in names if formula(name) is None] == []
    assert ELEMENTWISE.keys() & OTHERS.keys() == set()


@pytest.mark.parametrize("name", [*ELEMENTWISE, *OTHERS])
def test_a_formula_has_a_pullback_for_each_argument_with_a_rule(name):
    letters, _, backward = formula(name)
    assert len(backward) <= len(letters)
    (found,) = [p for p in PRIMITIVES if p.__name__ == name.partition("[")[0]][:1]
    if found.rules:
        assert [bool(rule) for rule in found.rules] == [bool(text) for text in backward]


@pytest.mark.parametrize("name", COMPUTED)
def test_an_elementwise_formula_is_what_its_rule_computes(name):
    letters, forward, backward = formula(name)
    primitive = next(p for p in PRIMITIVES if p.__name__ == name)
    args = samples(name, len(letters))
    values = dict(zip(letters, args))
    out, dy = primitive(*args), positive(*SHAPE, seed=4) - 1
    np.testing.assert_allclose(compute(re.fullmatch("y = (.*)", forward)[1], values), out, rtol=1e-12, atol=1e-15)
    tape = ng.Tape()
    floats = [i for i, a in enumerate(args) if a.dtype.kind == "f"]
    watched = [tape.variable(a) if i in floats else a for i, a in enumerate(args)]
    gradients = tape.gradient(primitive(*watched), [watched[i] for i in floats], dy)
    for i, gradient in zip(floats, gradients, strict=True):
        text = re.fullmatch(f"{letters[i]}\u0304 \\+= (.*)|. \\+= (.*)", backward[i])
        found = compute(text[1] or text[2], values | {"y": out, "dy": dy})
        np.testing.assert_allclose(found, gradient, rtol=1e-11, atol=1e-14)


def test_the_page_shows_the_pullbacks_of_inputs_only():
    tape = ng.WatchfulTape()
    x = tape.variable(np.ones((2, 3)), name="x")
    np.where(np.eye(2, 3) > 0, x / 2.0, np.ones(3))
    data = page(tape).replace("\\u003c", "<")
    assert '"forward":"y = a / b","backward":["ā += ȳ / b"],"arguments":[["a",0]],"parameters":[["b","2.0"]]' in data
    assert '"backward":["ā += ȳ · [c]"],"arguments":[["a",1]],"parameters":[],"constants":[["c",' in data


def test_a_plain_tape_that_cannot_tell_shows_all_pullbacks():
    tape = ng.Tape()
    tape.variable(1.0) / 2.0
    assert '"backward":["ā += ȳ / b","b̄ += −ȳ · y / b"],"arguments":[]' in page(tape)


def test_broadcast_inputs_have_their_shape_named():
    tape = ng.WatchfulTape()
    tape.variable(np.ones((2, 3))) + tape.variable(np.ones(3))
    assert '"backward":["ā += ȳ","b̄ += ȳ, summed to 3"]' in page(tape)


def test_a_users_primitive_is_named():
    tape = ng.WatchfulTape()
    before = list(PRIMITIVES)
    cube = ng.primitive(lambda size: size**3)
    cube.__name__ = "cube"
    cube.defvjp(lambda out, size: lambda g: g * 3 * size**2)
    PRIMITIVES[:] = before
    cube(tape.variable(2.0))
    assert '"forward":"y = cube(size)","backward":["the adjoint of size += its pullback of ȳ"]' in page(tape)
