"""demos/tape_walk.py prints, checks and saves."""

import runpy

from oracle import DATA

DEMO = DATA.parents[1] / "demos" / "tape_walk.py"


def test_it_prints_checks_and_saves(tmp_path, capsys):
    path = tmp_path / "tape.html"
    assert runpy.run_path(str(DEMO))["main"](path) == 0
    text = capsys.readouterr().out
    assert "17 records" in text
    assert "d16 = 1\nd15  = sum'(d16)" in text
    assert "head: pass, 60 coordinates" in text
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
