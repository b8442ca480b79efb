"""Every reported bug of tests/data/cases.py is tried in one of the test files."""

import importlib.util
from pathlib import Path

from data.cases import REGISTRY

HERE = Path(__file__).parent
TRIED_IN = {
    "decoder": "test_cases_decoder.py",
    "gradient checks": "test_cases_gradcheck.py",
    "optimisers": "test_cases_optim.py",
    "rotations": "test_cases_rope.py",
    "operations": "ops/test_cases_ops.py",
    "NumPy and graphs": "rules/test_cases_numpy.py",
}


def cases_of(file):
    """The names of the cases that a test file tries; each has a test that none of its CASES is left out."""
    spec = importlib.util.spec_from_file_location(f"cases_in_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert any(name.startswith(("test_all_of_them", "test_every_case")) for name in vars(module)), file
    return set(module.CASES)


def test_every_case_is_tried_somewhere():
    tried = set().union(*(cases_of(HERE / file) for file in TRIED_IN.values()))
    assert {case.__name__ for case in REGISTRY} - tried == set()
    assert [case.id for case in REGISTRY] == [f"G{i:02}" for i in range(1, len(REGISTRY) + 1)]
