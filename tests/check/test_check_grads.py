"""check_grads and check_vjp from the outside: what they take, what they return, what they say."""

import io
import sys

import numpy as np
import pytest
import small_decoder

import npgrad as ng
from npgrad.check import GradientError, check_grads, check_vjp
from npgrad.check.locate import prepare
from npgrad.check.progress import Progress
from npgrad.check.replay import replayed
from npgrad.check.subject import of_function
from npgrad.primitive import PRIMITIVES

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def wrong(forward, rule):
    made = ng.primitive(forward)
    made.defvjp(rule)
    PRIMITIVES.remove(made)
    return made


WRONG_SQUARE = wrong(lambda x: x**2, lambda out, x: lambda g: g * 2.02 * x)


def test_the_report_of_a_correct_function():
    report = check_grads(lambda p, x: np.tanh(x @ p["w"] + p["b"]), {"w": X.T, "b": np.ones(2)}, X)
    assert report
    assert report.verdict == "pass"
    assert report.coordinates == 6 + 2 + 6
    assert report.largest_error < 1e-9
    assert [c.path for c in report.leaves] == ["p['w']", "p['b']", "x"]
    assert str(report).startswith("<lambda>: pass, 14 coordinates")
    assert len(report.table().splitlines()) == 4
    assert report.worst.verdict == "pass"


def test_the_exception_carries_the_report():
    with pytest.raises(GradientError) as caught:
        check_grads(lambda w: np.sum(WRONG_SQUARE(w)), X)
    report = caught.value.report
    assert str(report) == str(caught.value)
    assert not report
    assert report.verdict == report.worst.verdict == "fail"
    assert report.worst.place == (0, 2)
    assert report.worst.analytic == pytest.approx(4.04)
    assert report.worst.numeric == pytest.approx(4.0)
    with pytest.raises(GradientError):
        report.raise_if_failed()
    assert "6 fail" in report.table()


def test_a_report_as_html_is_escaped():
    page = check_grads(lambda x: np.sin(x), X)._repr_html_()
    assert "max rel error" in page
    assert "<lambda>" not in page
    assert "&lt;lambda&gt;" in page


def test_inputs_are_left_alone_and_may_be_read_only_or_strided():
    x = X.copy()
    x.flags.writeable = False
    assert check_grads(np.sin, x.T)
    assert np.array_equal(x, X)


def test_integers_are_constants_and_no_float_is_an_error():
    assert check_grads(lambda x, i: x[i], X, np.array([0, 1, 1])).coordinates == X.size
    with pytest.raises(TypeError, match="no float array"):
        check_grads(np.sin, np.arange(3))


def test_wrong_options():
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        check_grads(np.sin, X, order=3)


def test_second_order_covers_inputs_and_cotangent():
    report = check_grads(np.tanh, X, order=2)
    assert [c.path for c in report.leaves][-1:] == ["cotangent"]
    assert report.coordinates == 2 * X.size


def test_the_adjoint_identity_is_part_of_second_order():
    forgetful = wrong(lambda x: x**2, lambda out, x: lambda g: ng.stop_gradient(g) * 2 * x)
    with pytest.raises(GradientError) as caught:
        check_grads(forgetful, X, order=2)
    assert "adjoint" in [b.kind for b in caught.value.report.breaches]


def test_directions_have_taylor_slopes_of_two():
    report = check_grads(small_decoder.loss, small_decoder.PARAMS, directions=3)
    assert report.coordinates == 0
    assert [d.slope for d in report.directions] == pytest.approx([2.0] * 3, abs=0.02)


def test_a_wrong_direction_has_slope_one_and_is_bisected():
    def one_wrong(g, x):
        d = g * np.cos(x)
        d[617] *= 1.001
        return d

    x = np.random.default_rng(3).normal(size=1000)
    with pytest.raises(GradientError) as caught:
        check_vjp(lambda x: np.sum(np.sin(x)), one_wrong, x, directions=1)
    report = caught.value.report
    assert report.directions[0].slope == pytest.approx(1.0, abs=0.1)
    assert (report.found.path, report.found.place) == ("x", (617,))
    assert report.worst == report.found


def test_batched_agrees_with_one_by_one():
    alone = check_grads(small_decoder.batched_loss, small_decoder.PARAMS, extended=False)
    together = check_grads(small_decoder.batched_loss, small_decoder.PARAMS, extended=False, batched=True)
    assert together.coordinates == alone.coordinates == small_decoder.SIZE
    for a, b in zip(alone.leaves, together.leaves):
        assert np.allclose(a.numeric.astype(float), b.numeric.astype(float), rtol=0, atol=1e-8)


def evaluator_of(f, *args):
    return prepare(of_function(f, args), seed=0, extended=False)[0]


def test_plain_differences_run_only_what_a_leaf_reaches():
    sines = []

    def sine(x):
        sines.append(1)
        return np.sin(x)

    early = wrong(sine, lambda out, x: lambda g: g * np.cos(x))
    replay = replayed(evaluator_of(lambda x, w: np.sum(early(x)) * w, np.ones(2), X))
    for leaf, count in ((0, 1), (1, 0)):
        evaluate = replay.bind([leaf])
        sines.clear()
        evaluate()
        assert len(sines) == count


@pytest.mark.parametrize(
    "f",
    [lambda x: x * ng.stop_gradient(np.sin(x)), lambda x: x if x[0, 0] < 0.52 else 2 * x, lambda x: X + 0],
    ids=["a value off the tape", "a branch on a value", "a constant"],
)
def test_operations_that_are_not_all_of_the_function_are_not_replayed(f):
    assert replayed(evaluator_of(f, X)) is None
    assert replayed(evaluator_of(np.sin, X)) is not None


@pytest.mark.parametrize("extended", [True, False])
def test_what_a_function_computes_off_its_tape_is_seen(extended):
    with pytest.raises(GradientError, match="no record fails alone"):
        check_grads(lambda x: np.sum(x * ng.stop_gradient(np.sin(x))), X, extended=extended)


def test_what_each_leaf_of_the_decoder_reaches_gives_what_the_whole_gives():
    evaluator = evaluator_of(small_decoder.loss, small_decoder.PARAMS)
    replay = replayed(evaluator)
    for leaf, x in enumerate(evaluator.leaves):
        evaluate = replay.bind([leaf])
        x.flat[-1] += 0.125
        assert np.allclose(evaluate(), evaluator.evaluate(), rtol=1e-14, atol=0)
        x.flat[-1] -= 0.125


def test_what_is_not_batched_is_refused():
    with pytest.raises(ValueError, match="is not batched"):
        check_grads(np.sum, X, batched=True)
    with pytest.raises(ValueError, match="is not batched"):
        check_grads(lambda x: x - np.mean(x), X, batched=True)


def test_batched_finds_faults():
    with pytest.raises(GradientError):
        check_grads(lambda x: np.sum(WRONG_SQUARE(x), axis=-1), X[0], batched=True)


def test_ctrl_c_gives_the_report_so_far():
    calls = []

    def slow(x, y):
        calls.append(1)
        if len(calls) > 80:
            raise KeyboardInterrupt
        return np.sum(np.sin(x)) + np.sum(y)

    report = check_grads(slow, X, np.ones(100))
    assert report.interrupted
    assert not report
    assert "interrupted after" in str(report)
    assert [c.path for c in report.leaves] == ["x", "y"]
    assert report.coordinates == X.size


def test_progress_goes_to_stderr(capsys):
    check_grads(np.sin, X, progress=True)
    assert "coordinates" in capsys.readouterr().err


def test_progress_without_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with Progress(20, "f", enabled=True) as advance:
        for _ in range(20):
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "f: 20 of 20 coordinates"
    assert len(lines) == 10
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress(20, "f", enabled=False) as advance:
        advance(20)
    assert sys.stderr.getvalue() == ""


def test_a_layer_that_keeps_its_inputs_between_the_calls():
    class Layer:
        def forward(self, x, w):
            self.kept = x, w
            return x @ w

        def backward(self, g):
            x, w = self.kept
            return g @ w.T, x.T @ g

    layer = Layer()
    assert check_vjp(layer.forward, lambda g, x, w: layer.backward(g), X, X.T)


def test_gradients_of_a_hand_written_pair_must_fit():
    with pytest.raises(ValueError, match="2 gradients for 1 arguments"):
        check_vjp(np.sin, lambda g, x: (g, g), X)


def test_float32_is_checked_in_its_own_precision():
    report = check_grads(np.tanh, X.astype(np.float32))
    assert report
    assert report.leaves[0].dtype == np.float32
    assert 1e-9 < report.largest_error < 5e-5


def test_outputs_may_be_trees():
    assert check_grads(lambda x: {"a": np.sin(x), "n": 3, "b": [x * x, np.sum(x)]}, X)
    with pytest.raises(GradientError):
        check_grads(lambda x: (np.sin(x), [WRONG_SQUARE(x)]), X)


def test_second_order_does_not_hide_a_wrong_first_derivative():
    for rule in (lambda out, x: lambda g: 2 * g * np.cos(x), lambda out, x: lambda g: g * 0):
        wrong = ng.primitive(lambda x: np.sin(x))
        wrong.defvjp(rule)
        PRIMITIVES.remove(wrong)
        with pytest.raises(GradientError):
            check_grads(wrong, np.array([0.5]), order=2)


@pytest.mark.parametrize("forgotten", [lambda x: None, lambda x: np.argmax(x), lambda x: "a"])
def test_a_function_without_a_float_result_is_no_pass(forgotten):
    with pytest.raises(TypeError, match="no floats to check"):
        check_grads(forgotten, np.ones(3))


def test_no_directions_are_no_check():
    with pytest.raises(ValueError, match="directions must be at least 1"):
        check_grads(np.sin, np.ones(2), directions=0)


def verdict_of(f, *args):
    try:
        return check_grads(f, *args).verdict
    except GradientError as error:
        return error.report.verdict


def test_a_value_that_cancels_to_nothing_hides_no_wrong_rule():
    def norm(x):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)

    forgetful = wrong(norm, lambda out, x: lambda g: g / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5))
    for seed in range(5):
        assert verdict_of(lambda x: np.sum(forgetful(x)), np.random.default_rng(seed).normal(size=(4, 8))) == "fail"
    a, p = np.random.default_rng(0).normal(size=(5, 3)), np.array([1.0, 2.0, 3.0])
    y = a @ p
    with pytest.raises(GradientError):
        check_vjp(lambda p: np.sum((a @ p - y) ** 2), lambda g, p: g * np.ones(3), p)


def test_random_functions_never_pass():
    rng = np.random.default_rng(0)
    drop = lambda x: np.sum(np.tanh(x) * (rng.random(x.shape) > 0.1))
    assert "pass" not in {verdict_of(drop, np.ones(10)) for _ in range(10)}


@pytest.mark.parametrize("scale", [40.0, 60.0, 80.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturation_is_no_fault(scale, dtype):
    """The slope is p - 1 for a p next to 1: it may be too small to check, but it is not wrong."""
    logits = np.array([[scale, 0, 0]], dtype)
    assert verdict_of(lambda x: ng.cross_entropy(x, [0]), logits) in ("pass", "inconclusive")
    q, k, v = (100 * np.random.default_rng(i).normal(size=(1, 4, 4)).astype(dtype) for i in range(3))
    assert verdict_of(ng.attention, q, k, v) in ("pass", "inconclusive")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [lambda x: x[0] + np.inf, lambda x: np.mean(np.log(x))])
def test_a_value_that_is_not_finite_blames_nobody(f):
    assert verdict_of(f, np.array([0.0, 1.0, 2.0])) == "inconclusive"
