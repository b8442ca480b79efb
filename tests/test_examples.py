"""Every declared example, first and second order: float64, float32, and strided read-only arrays; and other shapes."""

import pytest

from npgrad.check import check_grads
from npgrad.check.audit import checked, completed, load_examples, name_of_function, of_arrays, variants

DECLARED, COMPLETED = (
    {
        f"{name_of_function(function)}-{number}-{i}": example
        for number, (function, examples) in enumerate(load_examples().items())
        for i, example in enumerate(choose(examples))
    }
    for choose in (list, completed)
)


@pytest.mark.parametrize("name", COMPLETED)
def test_first_order(name):
    for label, function, args in variants(COMPLETED[name]):
        report = checked(function, args)
        assert report, f"{label}: {report}"
        assert not isinstance(report, str), f"{label}: {report}"


@pytest.mark.parametrize("name", DECLARED)
def test_second_order(name):
    """In plain float64, twice as fast: the first order is above, precisely."""
    function, args = of_arrays(DECLARED[name])
    assert check_grads(function, *args, order=2, extended=False)
