"""demos/rope_invariants.py: each law with its deviation, and the article's counterexample to six decimals."""

import json
import re
import runpy

import pytest
from oracle import DATA

DEMO = DATA.parents[1] / "demos" / "rope_invariants.py"
CASE = json.loads((DATA / "rope_seed_values.json").read_text())["worked"]["relative"][0]


@pytest.fixture(scope="module")
def main():
    return runpy.run_path(str(DEMO))["main"]


@pytest.fixture
def lines(main, capsys):
    assert main() == 0
    first = capsys.readouterr().out
    assert main() == 0
    assert capsys.readouterr().out == first
    assert "-0.000000" not in first
    return first.splitlines()


def test_every_law_comes_out_as_it_should(lines):
    laws = {line[11:]: float(line[:9]) for line in lines if re.match(r"\s*\d\.\de[-+]\d\d  ", line)}
    holding = {law for law in laws if law.endswith(": holds")}
    breaking = {law for law in laws if law.endswith(": breaks, as it must")}
    assert (len(holding), len(breaking)) == (6, 4)
    assert max(laws[law] for law in holding) <= CASE["tolerance"]
    assert min(laws[law] for law in breaking) > 0.1
    for words in ("R(n-m)", "m+23", "|q|", "2 pi", "true position", "permuted"):
        assert any(words in law for law in holding)
    for words in ("bases 10000 and 1000", "restart", "again"):
        assert any(words in law for law in breaking)
    assert "  refused  an odd width: odd-feature-width" in lines


def test_counterexample_has_the_article_s_numbers(lines):
    start = next(i for i, line in enumerate(lines) if line.startswith("q = "))
    assert "(1, 2, 3, 4), k = (2, -1, 0.5, 3)" in lines[start]
    assert f"{CASE['shift']} positions on" in lines[start]
    for row, line in zip(CASE["rows"], lines[start + 2 :]):
        m, n, *scores = (float(word) for word in line.split())
        assert (m, n) == (row["m"], row["n"])
        expected = [row["score"]["value"]] * 2 + [row[f"mixed_base_score{s}"]["value"] for s in ("", "_shifted")]
        assert scores == [round(value, 6) for value in expected]


def test_scores_of_a_single_frequency(lines):
    assert lines[-2].split() == ["pi", "-1.000000"]
    assert lines[-1].split() == ["2", "pi", "1.000000"]


@pytest.mark.parametrize(("laws", "to"), [("HOLD", 1.0), ("BREAK", 0.0)])
def test_a_law_that_comes_out_otherwise_fails(main, capsys, monkeypatch, laws, to):
    monkeypatch.setitem(main.__globals__[laws], "a law", lambda: to)
    assert main() == 1
    assert "a law: NOT SO" in capsys.readouterr().out
