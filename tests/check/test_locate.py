"""The culprit is named: in a two-block decoder with any one of its primitives sabotaged, with a hint at the mistake."""

import numpy as np
import pytest
import small_decoder

import npgrad as ng
from npgrad.check import GradientError, check_grads
from npgrad.check.locate import locate
from npgrad.check.records import trace
from npgrad.check.subject import of_function
from npgrad.primitive import PRIMITIVES

ENTRIES = trace(of_function(small_decoder.loss, (small_decoder.PARAMS,)))
NAMES = sorted({str(e.primitive) for e in ENTRIES})


def sabotage(monkeypatch, name, change):
    """Every pullback of the primitive called `name` gives `change(gradient)`."""
    record = ng.Tape.record

    def altered(pullback):
        def wrong(g):
            found = pullback(g)
            return tuple(h if h is None else change(h) for h in found) if isinstance(found, tuple) else change(found)

        return wrong

    def sabotaged(self, primitive, out, parents, pullbacks, args, kwargs):
        if str(primitive) == name:
            pullbacks = tuple(map(altered, pullbacks)) if isinstance(pullbacks, tuple) else altered(pullbacks)
        return record(self, primitive, out, parents, pullbacks, args, kwargs)

    monkeypatch.setattr(ng.Tape, "record", sabotaged)


def test_the_decoder_has_its_primitives():
    expected = {"embedding", "rms_norm", "rotary_pairs", "causal_mask", "softmax", "silu", "cross_entropy", "matmul"}
    assert expected <= set(NAMES)
    assert 1900 < small_decoder.SIZE < 2100


@pytest.mark.parametrize("name", NAMES)
def test_a_sabotaged_primitive_is_named_first(name, monkeypatch):
    sabotage(monkeypatch, name, lambda h: h * 1.001)
    with pytest.raises(GradientError) as caught:
        check_grads(small_decoder.loss, small_decoder.PARAMS, directions=1)
    culprit = caught.value.report.culprit
    assert culprit.primitive == name
    assert culprit.line.startswith("small_decoder.py:")
    assert 0 < culprit.failing <= culprit.coordinates
    assert "1.001 * numeric" in culprit.hint


@pytest.mark.parametrize("name", NAMES)
def test_an_error_of_one_in_a_billion_is_found_in_each_primitive(name, monkeypatch):
    sabotage(monkeypatch, name, lambda h: h * (1 + 1e-9))
    entries = trace(of_function(small_decoder.loss, (small_decoder.PARAMS,)))
    first = next(e for e in entries if str(e.primitive) == name)
    assert locate([first], seed=0).primitive == name


def test_nothing_is_found_where_nothing_is_wrong():
    assert locate(ENTRIES[:12], seed=0) is None


def primitive(forward, rule):
    made = ng.primitive(forward)
    made.defvjp(rule)
    PRIMITIVES.remove(made)
    return made


def culprit_of(f, *args):
    with pytest.raises(GradientError) as caught:
        check_grads(f, *args)
    return caught.value.report.culprit


def test_it_says_where_and_how_much():
    def rule(out, x):
        def pullback(g):
            d = g * 2 * x
            d[1:, 2] *= 1.5
            return d

        return pullback

    square = primitive(lambda x: x**2, rule)
    found = culprit_of(lambda w: np.sum(np.sin(square(w))), np.arange(1.0, 13.0).reshape(3, 4))
    assert (found.primitive, found.record, found.failing, found.coordinates) == ("<lambda>", 1, 2, 12)
    assert found.box == "[1:3, 2:3]"
    assert found.input_index == found.output_index == (2, 2)
    assert found.argument == "x (w)"
    assert found.analytic == pytest.approx(1.5 * found.numeric, rel=1e-9)
    assert found.line.startswith("test_locate.py:")


def rotary(x, cosines, sines):
    return np.stack([x[..., ::2] * cosines - x[..., 1::2] * sines, x[..., ::2] * sines + x[..., 1::2] * cosines], -1)


def softmax(x):
    e = np.exp(x)
    return e / np.sum(e, -1, keepdims=True)


def overwrite(out, table, ids):
    def pullback(g):
        found = np.zeros(table.shape)
        found[ids] = g
        return found

    return pullback


def masked(x):
    return np.where(np.tri(4, dtype=bool), x, -1e9)


def rotate(x, cosines, sines):
    return np.reshape(rotary(x, cosines, sines), x.shape)


RNG = np.random.default_rng(5)
ANGLES = np.outer(np.arange(4), [1.0, 0.1])
HINTS = {
    "a scale": (np.tanh, lambda out, x: lambda g: g * 1.01 * (1 - out**2), [RNG.normal(size=(3, 2))]),
    "overwritten": (lambda t, ids: t[ids], overwrite, [RNG.normal(size=(4, 2)), np.array([1, 3, 1])]),
    "missing reduction": (softmax, lambda out, x: lambda g: g * out, [RNG.normal(size=(3, 4))]),
    "mask leaks": (masked, lambda out, x: lambda g: g * np.where(np.tri(4), 1, 1e-3), [RNG.normal(size=(4, 4))]),
    "sign of the sine": (rotate, lambda out, x, c, s: lambda g: rotate(g, c, s), [RNG.normal(size=(4, 4)), ANGLES]),
}


@pytest.mark.parametrize("words", HINTS)
def test_known_patterns_get_a_hint(words):
    forward, rule, (x, *rest) = HINTS[words]
    if forward is rotate:
        rest = [np.cos(rest[0]), np.sin(rest[0])]
    made = primitive(forward, rule)
    assert words in culprit_of(lambda x: made(x, *rest), x).hint


def test_when_no_record_fails_alone_it_says_so():
    with pytest.raises(GradientError, match="no record fails alone") as caught:
        check_grads(lambda x: np.sum(x * ng.stop_gradient(np.sin(x))), np.array([0.5, 1.5]))
    assert caught.value.report.culprit is None


def test_a_second_order_fault_is_traced_to_its_primitive():
    square = primitive(lambda x: x**2, lambda out, x: lambda g: g * 2 * ng.stop_gradient(x))
    square.__name__ = "square"
    with pytest.raises(GradientError) as caught:
        check_grads(lambda x: np.sum(np.exp(square(np.sin(x)))), np.array([0.5, 1.5]), order=2)
    assert caught.value.report.culprit.primitive == "square"
