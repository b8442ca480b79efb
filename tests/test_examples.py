"""Every declared example, first and second order: float64, float32, and strided read-only arrays."""

import pytest

from npgrad.check import check_grads
from npgrad.check.audit import checked, load_examples, name_of_function, of_arrays, variants

DECLARED = {
    f"{name_of_function(function)}-{i}": example
    for function, examples in load_examples().items()
    for i, example in enumerate(examples)
}


@pytest.mark.parametrize("name", DECLARED)
def test_first_order(name):
    for label, function, args in variants(DECLARED[name]):
        report = checked(function, args)
        assert report, f"{label}: {report}"
        assert not isinstance(report, str), f"{label}: {report}"


@pytest.mark.parametrize("name", DECLARED)
def test_second_order(name):
    function, args = of_arrays(DECLARED[name])
    assert check_grads(function, *args, order=2)
