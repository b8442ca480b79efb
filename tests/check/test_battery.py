"""The battery: every planted fault is caught, every correct function passes, under three seeds."""

import battery
import numpy as np
import pytest
import small_decoder

import npgrad as ng
from npgrad.check import GradientError, check_grads, check_vjp
from npgrad.primitive import PRIMITIVES

SEEDS = (0, 1, 2)


def fresh(case):
    """The case's arguments as arrays that it may spoil."""
    return tuple(a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in case.args)


def verdict(check, *args, **options):
    try:
        return check(*args, **options).verdict
    except GradientError as error:
        return error.report.verdict


def test_it_is_large_enough():
    assert len(battery.FAULTS) >= 40
    assert len(battery.HARD) >= 30
    assert len({c.name for c in battery.FAULTS + battery.HARD}) == len(battery.FAULTS) + len(battery.HARD)


@pytest.mark.parametrize("case", battery.FAULTS, ids=lambda c: c.name)
def test_fault_is_caught(case):
    assert [verdict(check_vjp, case.forward, case.backward, *fresh(case), seed=s) for s in SEEDS] == ["fail"] * 3


@pytest.mark.parametrize("case", battery.HARD, ids=lambda c: c.name)
def test_correct_function_passes(case):
    assert [verdict(check_vjp, case.forward, case.backward, *fresh(case), seed=s) for s in SEEDS] == ["pass"] * 3


def primitive(forward, *rules):
    """A primitive that is in no registry once the test is over."""
    made = ng.primitive(forward)
    made.defvjp(*rules)
    PRIMITIVES.remove(made)
    return made


def square(x):
    return x**2


SECOND_ORDER_FAULTS = {
    "input taken off the tape": lambda out, x: lambda g: g * 2 * ng.stop_gradient(x),
    "cotangent taken off the tape": lambda out, x: lambda g: ng.stop_gradient(g) * 2 * x,
    "slope through a wrong primitive": lambda out, x: lambda g: g * twice(x),
}
twice = primitive(lambda x: 2 * x, lambda out, x: lambda g: g * 2.01)


@pytest.mark.parametrize("rule", SECOND_ORDER_FAULTS.values(), ids=SECOND_ORDER_FAULTS)
def test_fault_of_second_order_only(rule):
    f = primitive(square, rule)
    x = battery.normal(3, 2)
    for seed in SEEDS:
        assert check_grads(f, x, seed=seed)
        assert verdict(check_grads, f, x, order=2, seed=seed) == "fail"


RULE_FAULTS = {
    "dtype": lambda out, x: lambda g: (g * 2 * x).astype(float),
    "mutation": lambda out, x: lambda g: np.multiply(g, 2 * x, out=g),
    "shape": lambda out, x: lambda g: np.sum(g * 2 * x),
}


@pytest.mark.parametrize("kind", RULE_FAULTS)
def test_contract_of_a_single_rule(kind):
    """What the sweep would repair or survive is a breach of the rule's own contract, and names the primitive."""
    f = primitive(square, RULE_FAULTS[kind])
    with pytest.raises(GradientError) as caught:
        check_grads(lambda x: np.sum(f(np.tanh(x))), battery.normal(3, 2).astype(np.float32))
    breach = caught.value.report.breaches[0]
    assert breach.kind == kind
    assert breach.where.startswith("square, record %2")


def test_every_breach_has_its_name():
    kinds = {
        "broadcastable shape": "shape",
        "float64 gradient of float32": "dtype",
        "cotangent mutated": "mutation",
        "input mutated": "mutation",
        "not linear: square": "linearity",
        "not linear: constant added": "zero",
        "nondeterministic": "determinism",
        "result is the cotangent": "aliasing",
        "one buffer for both gradients": "aliasing",
        "stale saved array": "stale",
    }
    cases = {c.name: c for c in battery.FAULTS}
    for name, kind in kinds.items():
        with pytest.raises(GradientError) as caught:
            check_vjp(cases[name].forward, cases[name].backward, *fresh(cases[name]))
        assert kind in [b.kind for b in caught.value.report.breaches], name


def test_kinks_are_listed_with_their_slopes():
    case = next(c for c in battery.HARD if c.name == "abs at 0 with slope 0")
    report = check_vjp(case.forward, case.backward, *case.args)
    [(path, index, left, right)] = report.non_smooth
    assert (path, index) == ("args[0]", (0,)) or (path, index) == ("x", (0,))
    assert left == -right
    assert abs(right) >= 0.5


def test_at_a_kink_a_value_outside_the_slopes_fails():
    x = np.array([0.0, 1.0])
    assert verdict(check_vjp, np.abs, lambda g, x: g * np.where(x == 0, 1.5, np.sign(x)), x) == "fail"


UNDECIDABLE = {
    "away from such points": (np.sqrt, lambda g, x: g / (2 * np.sqrt(x)), np.array([0.0, 0.25])),
    "leave large constant terms out": (lambda x: 1e16 + np.sin(x), lambda g, x: g * np.cos(x), np.array([0.3, 0.7])),
}


@pytest.mark.parametrize("advice", UNDECIDABLE)
def test_what_cannot_be_decided_is_no_pass_and_says_what_to_do(advice):
    """An infinite slope, and a slope of 1 in a function of 1e16."""
    with pytest.raises(GradientError, match=advice) as caught:
        check_vjp(*UNDECIDABLE[advice])
    report = caught.value.report
    assert report.verdict == "inconclusive"
    assert not report
    assert len(report.notes) == 1


def test_a_fault_in_what_cannot_be_decided_is_no_pass():
    x = np.array([0.3, 0.7])
    assert verdict(check_vjp, lambda x: 1e16 + np.sin(x), lambda g, x: 1.0001 * g * np.cos(x), x) != "pass"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("tokens", [1, 3])
def test_attention_whose_first_query_sees_one_key(tokens, dtype):
    """That query's gradient is exactly 0, and comes out as the last bits of what cancels."""
    rng = np.random.default_rng(tokens)
    for seed in SEEDS:
        args = [rng.normal(size=(2, tokens, 4)).astype(dtype) for _ in range(3)]
        assert check_grads(ng.attention, *args, seed=seed)
        assert check_grads(ng.attention, *args, seed=seed, order=2)


@pytest.fixture
def no_wide_float(monkeypatch):
    """A platform whose long double is float64."""
    monkeypatch.setattr("npgrad.check.differences._widest", lambda subject: np.dtype(float))


NEEDS_A_WIDE_FLOAT = {"1e8 + sin x", "sum of 1e8 + sin x", "one large constant among small terms"}


@pytest.mark.parametrize("case", battery.FAULTS + battery.HARD, ids=lambda c: c.name)
def test_without_a_wider_float(case, no_wide_float):
    expected = "fail" if case in battery.FAULTS else "inconclusive" if case.name in NEEDS_A_WIDE_FLOAT else "pass"
    assert verdict(check_vjp, case.forward, case.backward, *fresh(case)) == expected


def test_a_decoder_passes_without_a_wider_float(no_wide_float):
    params = small_decoder.PARAMS
    few = {"norm": params["norm"], "blocks": [{"norm": b["norm"], "wq": b["wq"]} for b in params["blocks"]]}

    def loss(few):
        blocks = [{**b, **c} for b, c in zip(params["blocks"], few["blocks"])]
        return small_decoder.loss({**params, "norm": few["norm"], "blocks": blocks})

    assert check_grads(loss, few).coordinates == 3 * 8 + 2 * 64
