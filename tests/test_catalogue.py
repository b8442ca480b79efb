"""The catalogue accounts for every public function of NumPy, and what it says of each is what happens."""

import inspect

import numpy as np
import pytest

import npgrad as ng
from npgrad.catalogue import UNKNOWN
from npgrad.variable import NONDIFFERENTIABLE, REFUSED, REGISTRY

CATALOGUE = ng.supported()


def function_of(name):
    return getattr(np.linalg, name[10:]) if name.startswith("np.linalg.") else getattr(np, name[3:])


def test_every_public_function_is_accounted_for():
    for home, prefix in ((np, "np."), (np.linalg, "np.linalg.")):
        functions = {n for n in home.__all__ if callable(getattr(home, n)) and not isinstance(getattr(home, n), type)}
        assert {prefix + n for n in functions} <= CATALOGUE.keys()
    assert [name for name, kind in CATALOGUE.items() if kind == UNKNOWN] == []


def test_no_function_is_in_two_lists():
    assert not REFUSED.keys() & NONDIFFERENTIABLE
    assert not {f for f in NONDIFFERENTIABLE if f in REGISTRY}
    assert not {f for f in REFUSED if f in REGISTRY}


def test_each_refusal_is_a_reason_of_its_own():
    for name, kind in CATALOGUE.items():
        if name in ("np.put", "np.linalg.eig", "np.unique", "np.bitwise_and", "np.histogram"):
            assert kind.startswith("refused: ")
    assert all(len(reason) > 10 for reason in REFUSED.values())


X = np.array([[1.0, 2.0], [3.0, 5.0]])
CALLS = {
    "np.put": lambda x: np.put(x, [0], 1.0), "np.putmask": lambda x: np.putmask(x, X > 1, 1.0),
    "np.fill_diagonal": lambda x: np.fill_diagonal(x, 1.0), "np.copyto": lambda x: np.copyto(np.ones(2), x[0]),
    "np.place": lambda x: np.place(x, X > 1, [1.0]),
    "np.put_along_axis": lambda x: np.put_along_axis(x, np.array([[0]]), 1.0, 0),
    "np.unique": np.unique, "np.histogram": np.histogram, "np.roots": lambda x: np.roots(x[0]), "np.poly": np.poly,
    "np.nextafter": lambda x: np.nextafter(x, 1.0), "np.bitwise_and": lambda x: np.bitwise_and(x, 1),
    "np.linalg.lstsq": lambda x: np.linalg.lstsq(x, x), "np.linalg.eig": np.linalg.eig,
    "np.linalg.eigvals": np.linalg.eigvals,
    "np.intersect1d": lambda x: np.intersect1d(x, x), "np.packbits": np.packbits,
    "np.polyfit": lambda x: np.polyfit(x[0], x[1], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_refused_call_says_why(name):
    with pytest.raises(TypeError) as caught:
        CALLS[name](ng.Tape().variable(X))
    assert CATALOGUE[name].removeprefix("refused: ") in str(caught.value)


@pytest.mark.parametrize(
    "f", [np.array, np.asarray, np.ascontiguousarray, np.float64, lambda x: np.full(2, x), np.kaiser]
)
def test_what_numpy_does_not_hand_over_is_an_error_too(f):
    with pytest.raises(TypeError):
        f(ng.Tape().variable(3.0)) if f is not np.kaiser else np.kaiser(5, ng.Tape().variable(3.0))


def test_adding_in_place_points_to_the_function_that_gives_a_new_array():
    with pytest.raises(TypeError, match=r"np\.add\.at .*ng\.add_at"):
        np.add.at(np.ones(2), [0], ng.Tape().variable(3.0))


def test_the_table_names_all():
    text = str(CATALOGUE)
    assert repr(CATALOGUE) == text
    for name in CATALOGUE:
        assert name in text
    assert f"differentiable ({sum(kind == 'differentiable' for kind in CATALOGUE.values())})" in text
    assert max(map(len, text.splitlines())) < 200


def test_defaults_are_numpys():
    compared = 0
    for function, ours in REGISTRY.items():
        if not inspect.isfunction(ours) or not hasattr(function, "__wrapped__"):  # NumPy's functions written in Python
            continue
        try:
            theirs = inspect.signature(function).parameters
        except ValueError:  # NumPy 2.0 doesn't tell those of a few functions in C
            continue
        for name, parameter in inspect.signature(ours).parameters.items():
            default = theirs[name].default if name in theirs else np._NoValue
            if parameter.empty not in (parameter.default, default) and default is not np._NoValue:
                assert parameter.default == default, f"{function.__name__}({name}=)"
                compared += 1
    assert compared > 150
