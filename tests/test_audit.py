"""The audit and its command line: every registered primitive has examples, and failures change the exit status."""

import argparse
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import npgrad as ng
from npgrad.__main__ import main
from npgrad.check.audit import (
    LEAST_SHAPES,
    audit,
    checked,
    completed,
    load_examples,
    name_of_function,
    shapes,
    uncovered,
    variants,
)
from npgrad.check.examples import EXAMPLES, Example, example
from npgrad.primitive import PRIMITIVES

ROOT = Path(__file__).parents[1]


def test_every_registered_primitive_has_examples():
    code = "from npgrad.check.audit import uncovered; print(uncovered())"  # without the primitives that tests register
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_primitive_without_examples_is_named():
    made = ng.primitive(lambda x: x)
    made.__name__ = "unexampled"
    try:
        assert name_of_function(made) in uncovered()
    finally:
        PRIMITIVES.remove(made)


def test_every_function_is_checked_at_three_shapes():
    few = [name_of_function(f) for f, e in load_examples().items() if len({*map(shapes, completed(e))}) < LEAST_SHAPES]
    assert few == []


def test_fewer_shapes_are_completed_with_the_smallest_shorter_and_stacked_ones():
    declared = [Example(np.sin, (np.ones((2, 3)),), {})]
    assert [shapes(e) for e in completed(declared)] == [((2, 3),), ((1, 1),), ((1, 2),)]
    assert [shapes(e) for e in completed([Example(np.sin, (np.ones(2),), {})])] == [((2,),), ((1,),), ((2, 2),)]
    enough = [Example(np.sin, (np.ones(n),), {}) for n in range(3)]
    assert completed(enough) == enough


def test_shapes_that_a_function_refuses_are_left_out():
    square = [Example(np.linalg.tensorinv, (np.eye(6).reshape(6, 2, 3),), {"ind": 1})]
    assert [shapes(e) for e in completed(square)] == [((6, 2, 3),), ((1, 1, 1),)]


def test_variants_keep_values_and_change_what_they_say():
    declared = Example(
        lambda x, a, i, w: (x * a)[:, i] * w, (np.arange(6.0).reshape(2, 3), 2.0, np.arange(3)), {"w": 1}
    )
    (_, function, args), (_, _, single), (_, _, strided) = variants(declared)
    assert np.array_equal(function(*args), 2 * declared.args[0])  # the plain number is a constant
    assert args[0] is declared.args[0]
    assert (single[0].dtype, single[1].dtype) == (np.float32, np.arange(3).dtype)
    assert np.array_equal(strided[0], args[0])
    assert not strided[0].flags.c_contiguous
    assert not strided[0].flags.writeable


@pytest.fixture
def only(monkeypatch):
    """Start with no examples at all."""
    monkeypatch.setattr("npgrad.check.audit.load_examples", lambda: EXAMPLES)
    kept = dict(EXAMPLES)
    EXAMPLES.clear()
    yield
    EXAMPLES.clear()
    EXAMPLES.update(kept)


def test_outcomes_say_what_was_checked(only):
    example(np.sin, np.ones((2, 3)))
    example(np.sin, np.ones(4))
    [outcome] = audit()
    assert outcome.name == "np.sin"
    assert outcome.coordinates == 3 * (6 + 4 + 1)
    assert outcome.failures == []
    assert "(2,3); (4,); (1,1)" in str(outcome)
    assert str(outcome).count("\n") == 0


def test_errors_are_failures_too(only):
    def broken(x):
        raise RuntimeError("out of order")

    example(broken, np.ones(2))
    [outcome] = audit()
    assert len(outcome.failures) == 3  # and no other shape is taken
    assert "RuntimeError: out of order" in outcome.failures[0]
    assert checked(np.sin, (np.ones(2),)).verdict == "pass"


MODULE = """
    import numpy as np
    import npgrad as ng
    from npgrad.check import example

    @ng.primitive
    def cube(x):
        return x**3

    cube.defvjp(lambda out, x: lambda g: g * FACTOR * x**2)
    example(cube, np.array([0.5, 2.0]))

    def loss(x=1.5, n=2):
        return np.sum(cube(x * np.ones(n)))

    def bare(x):
        return x
"""


@pytest.fixture
def module(tmp_path, monkeypatch, only):
    """Write a user's module whose cube has the slope factor * x**2, and make it importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    count = len(PRIMITIVES)

    def write(factor):
        (tmp_path / "cubes.py").write_text(textwrap.dedent(MODULE).replace("FACTOR", factor))

    yield write
    sys.modules.pop("cubes", None)
    del PRIMITIVES[count:]


def test_the_audit_takes_users_modules(module, monkeypatch, capsys):
    monkeypatch.setattr("npgrad.check.audit.uncovered", lambda: [])
    module("3")
    assert main(["audit", "cubes"]) == 0
    printed = capsys.readouterr().out
    assert "cubes.cube" in printed
    assert "1 functions, 21 coordinates" in printed


def test_a_wrong_rule_is_exit_status_one(module, monkeypatch, capsys):
    monkeypatch.setattr("npgrad.check.audit.uncovered", lambda: [])
    module("3.001")
    assert main(["audit", "cubes"]) == 1
    assert "wrong by itself: cube" in capsys.readouterr().out


def test_a_primitive_without_example_is_exit_status_one(module, monkeypatch, capsys):
    monkeypatch.setattr("npgrad.check.audit.uncovered", lambda: ["cubes.other"])
    module("3")
    assert main(["audit", "cubes"]) == 1
    assert "cubes.other is registered without an example" in capsys.readouterr().out


def test_every_argument_of_every_command_is_explained(monkeypatch, capsys):
    add, without = argparse.ArgumentParser.add_argument, []

    def noted(parser, *names, **options):
        if not options.get("help"):
            without.append((parser.prog, *names))
        return add(parser, *names, **options)

    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", noted)
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    assert "--top-p X" in capsys.readouterr().out
    assert without == []


def test_check_at_declared_examples(module, capsys):
    module("3")
    assert main(["check", "cubes:cube"]) == 0
    assert capsys.readouterr().out.count("pass") >= 3


def test_check_at_default_arguments(module, capsys):
    module("3.001")
    assert main(["check", "cubes:loss"]) == 1
    assert "wrong by itself: cube" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "words"),
    [("cubes:bare", "no examples, and no default for x"), ("cubes:missing", "has no missing"),
     ("cubes", "names no function"), ("nowhere:f", "nowhere"), (":f", "names no function"), ("cubes:cube.", "has no"),
     ("math:dist", "no default for p, q"), ("builtins:min", "has no examples, and no"),
     (".cubes:f", "can't be imported")],
)  # fmt: skip
def test_what_cannot_be_checked_is_exit_status_two(path, words, module, capsys):
    module("3")
    assert main(["check", path]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("code", ["def f(:", "1 / 0", "raise KeyError('a')", "raise SystemExit(0)", "import nowhere"])
@pytest.mark.parametrize("command", [["check", "broken:f"], ["audit", "broken"]], ids=["check", "audit"])
def test_a_module_that_cannot_be_imported_is_exit_status_two(command, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "broken.py").write_text(code)
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("npgrad: broken can't be imported: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
