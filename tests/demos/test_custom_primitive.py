"""demos/custom_primitive.py: the checker names the wrong rule and passes the right one."""

import runpy

import pytest
from oracle import DATA

from npgrad.primitive import PRIMITIVES

DEMO = DATA.parents[1] / "demos" / "custom_primitive.py"


@pytest.fixture(autouse=True)
def _registry_as_before():
    before = list(PRIMITIVES)
    yield
    PRIMITIVES[:] = before


def test_wrong_then_right(capsys):
    assert runpy.run_path(str(DEMO))["main"]() == 0
    wrong, right = capsys.readouterr().out.split("with the right rule:")
    assert "wrong by itself: soft_sign, record %3, called at custom_primitive.py" in wrong
    assert "loss: pass, 12 coordinates" in right
