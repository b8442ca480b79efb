"""demos/rope_report.py: every number that it prints, against the course's recomputed ones."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest
from oracle import DATA

DEMO = DATA.parents[1] / "demos" / "rope_report.py"
CASE = json.loads((DATA / "rope_seed_values.json").read_text())["worked"]["pair_tables"][0]
LIMITS = json.loads((DATA / "rope_seed_values.json").read_text())["worked"]["table_limits"]


@pytest.fixture(scope="module")
def main():
    return runpy.run_path(str(DEMO))["main"]


@pytest.fixture
def sections(main, capsys):
    """The report's lines by the title above them."""
    assert main() == 0
    text = capsys.readouterr().out
    parts = re.split(r"\n\n(.+)\n-+\n", text)
    return {title: body.splitlines() for title, body in zip(parts[1::2], parts[2::2])}


def numbers(line):
    return [float(word) for word in line.split()]


def printed(values):
    """Exact values as the report should show them: six decimals."""
    return [[round(v, 6) + 0.0 for v in line] for line in values]


def find(sections, start):
    (found,) = (lines for title, lines in sections.items() if title.startswith(start))
    return found


def test_course_example_is_the_one_shown(main):
    given = main.__globals__
    assert given["QUERIES"].tolist() == CASE["q"]
    assert given["KEYS"].tolist() == CASE["k"]
    assert given["QUERY_ADJOINT"].tolist() == CASE["cot_q"]
    assert given["KEY_ADJOINT"].tolist() == CASE["cot_k"]
    assert (given["SHIFT"], given["BASE"], given["WIDTH"]) == (CASE["shift"], CASE["base"], CASE["d"])
    check = CASE["central_difference"]
    assert (given["STEP"], given["GRADIENT_TOLERANCE"]) == (check["h"], check["tolerance"])
    assert given["SHIFT_TOLERANCE"] == CASE["shift_tolerance"]


def test_frequencies_and_rotations(sections):
    assert numbers(find(sections, "Frequencies")[0]) == CASE["frequencies"]["value"]
    shown = [numbers(line) for line in find(sections, "Pairs")[1:]]
    expected = []
    for m in range(3):
        for pair in range(2):
            features = slice(2 * pair, 2 * pair + 2)
            values = [CASE["frequencies"]["value"][pair], CASE["angles"]["value"][m][pair]]
            values += CASE["q"][m][features] + CASE["rotated_q"]["value"][m][features]
            expected.append([m, pair, *printed([values])[0]])
    assert shown == expected


def test_dot_products_and_lengths(sections):
    for positions, name in (("positions 0 to 2", "dots"), ("positions 3 to 5", "shifted_dots")):
        (lines,) = (lines for title, lines in sections.items() if title.endswith(positions))
        assert [numbers(line) for line in lines[:3]] == printed(CASE[name]["value"])
    change = re.fullmatch(r"largest change: (\S+) \(tolerance 1e-12\)", lines[3])
    assert float(change[1]) <= CASE["shift_tolerance"]
    expected = [CASE[name]["value"] for name in ("norms_q", "norms_rotated_q", "norms_shifted_q")]
    assert [numbers(line) for line in find(sections, "Lengths")] == printed(expected)


def test_ranks_and_empty_axes(sections):
    assert find(sections, "Ranks 2 to 4") == [
        "rank 2: shape (3, 4), equal", "rank 3: shape (2, 3, 4), equal", "rank 4: shape (2, 2, 3, 4), equal",
    ]  # fmt: skip
    for line in find(sections, "Empty axes"):
        before, after = re.findall(r"\(.*?\)", line)
        assert before == after
        assert "0" in before[1:-1].split(", ")


def test_every_refusal_has_its_code(sections):
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in find(sections, "Refused"))
    for case in LIMITS:
        if "position" in case:
            place = f"non-finite-table-value at position {case['position']}, pair {case['pair']}"
            assert place in shown.values()
    codes = {
        "zero-feature-width", "odd-feature-width", "zero-position-capacity", "invalid-base", "table-size-overflow",
        "table-allocation-failed", "non-finite-table-value", "input-rank", "feature-width-mismatch",
        "position-offset-overflow", "position-range-exceeded",
    }  # fmt: skip
    assert {code.split(" at ")[0] for code in shown.values()} == codes


def test_reverse_mode_tables(sections):
    for name in "qk":
        shown = [numbers(line) for line in find(sections, f"Reverse mode, {name.upper()}")]
        both = [a + b for a, b in zip(CASE[f"cot_{name}"], CASE[f"grad_{name}"]["value"])]
        assert shown == [[m, *line] for m, line in enumerate(printed(both))]


def test_central_differences_over_all_coordinates(sections):
    lines = find(sections, "Central differences, step 1e-06")
    found = [re.fullmatch(r"[QK]: (\d+) coordinates, largest error (\S+)", line) for line in lines[:2]]
    assert [int(m[1]) for m in found] == [CASE["central_difference"]["coordinates_each"]] * 2
    largest = re.fullmatch(r"largest error of all: (\S+) \(tolerance 4e-06\)", lines[2])
    assert float(largest[1]) == max(float(m[2]) for m in found) <= CASE["central_difference"]["tolerance"]
    assert lines[-1] == "every check passed"


def test_two_runs_give_the_same_bytes_without_negative_zeros():
    environment = {**os.environ, "PYTHONPATH": str(DEMO.parents[1])}
    runs = [
        subprocess.run([sys.executable, DEMO], cwd=DEMO.parents[1], capture_output=True, env=environment)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0]
    assert runs[0].stdout == runs[1].stdout
    assert b"-0.000000" not in runs[0].stdout
    assert not runs[0].stderr


def test_a_wrong_derivative_fails_the_report(main, capsys, monkeypatch):
    queries, keys = main.__globals__["QUERIES"], main.__globals__["KEYS"]
    monkeypatch.setattr(
        main.__globals__["ng"], "grad", lambda f, argnums: lambda *args: (queries * 0, keys * 0)
    )  # fmt: skip
    assert main() == 1
    assert "A CHECK FAILED" in capsys.readouterr().out
