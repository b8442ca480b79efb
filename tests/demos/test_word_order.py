"""demos/word_order.py: the lesson's numbers, as it prints them."""

import json
import re
import runpy

import pytest
from oracle import DATA

DEMO = DATA.parents[1] / "demos" / "word_order.py"
SEED = json.loads((DATA / "rope_seed_values.json").read_text())
LESSON = next(case for case in SEED["worked"]["reading"] if case["document"] == "lesson")
PRINTED = {p["what"]: p["value"] for p in SEED["printed"] if p["document"] == "lesson"}


@pytest.fixture(scope="module")
def main():
    return runpy.run_path(str(DEMO))["main"]


@pytest.fixture
def text(main, capsys):
    assert main() == 0
    first = capsys.readouterr().out
    assert main() == 0
    assert capsys.readouterr().out == first
    return first


def vectors(line):
    return [[float(word) for word in found.split(", ")] for found in re.findall(r"\[(.*?)\]", line)]


def rounded(values, decimals=4):
    return [round(value, decimals) for value in values]


def test_the_lesson_s_words_are_the_ones_read(main):
    given = main.__globals__
    assert given["QUERY"].tolist() == [LESSON["q_last"]]
    assert given["KEYS"].tolist() == LESSON["keys"]
    assert given["VALUES"].tolist() == LESSON["values"]
    assert LESSON["order"] == given["SWAPPED"]


def test_only_rotation_tells_the_order(text):
    readings = [vectors(line) for line in text.splitlines() if "weights" in line]
    names = ["plain", "plain_swapped", "rope", "rope_swapped"]
    for (weights, mixture), name in zip(readings, names, strict=True):
        assert weights == rounded(LESSON["results"][name]["weights"]["value"])
        assert mixture == rounded(LESSON["results"][name]["output"]["value"])
    assert readings[0][1] == readings[1][1]
    assert (readings[2][1], readings[3][1]) == ([0.6047, 1.6751], [0.6475, 1.4569])
    assert text.index("the same to it") < text.index("With rotary") < text.index("told apart")


def test_exercises(text):
    first, second = (exercise for exercise in SEED["exercises"][:2])
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Exercise 1"))
    assert [float(word) for word in lines[at + 1].split()] == rounded(first["answer"]["value"], 8)
    at = next(i for i, line in enumerate(lines) if line.startswith("Exercise 2"))
    assert vectors(lines[at + 1])[0] == rounded(second["angles"]["value"], 8)
    assert float(lines[at + 1].split()[-1]) == round(second["length"]["value"], 8)


def test_scores_rise_again_at_distance_seven(text):
    shown = dict(re.findall(r"^  (\d)  +(-?\d\.\d{3})  #*$", text, flags=re.MULTILINE))
    assert list(shown) == list("01234567")
    assert float(shown["2"]) == round(PRINTED["dot at distance 2"], 3)
    assert float(shown["7"]) == round(PRINTED["dot at distance 7"], 3)
    assert float(shown["7"]) > float(shown["1"]) > float(shown["2"])


def test_a_rotation_that_does_nothing_fails(main, capsys, monkeypatch):
    class Still:
        def rotate(self, x, offset=0):
            return x

    monkeypatch.setitem(main.__globals__, "rope", Still())
    assert main() == 1
    assert "told apart" not in capsys.readouterr().out
