"""The README is true: its code runs, in order, and its commands are the ones that are used."""

import builtins
import re
import shlex
from pathlib import Path

import npgrad as ng
from npgrad import decoder, optim, parallel, tree

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_block_of_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    assert len(blocks) == README.count("```python") > 5
    namespace = {}
    for indent, code in blocks:
        exec(compile(re.sub(f"^{indent}", "", code, flags=re.MULTILINE), "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "params['wq']" in printed
    assert "rotary_pairs" in printed


def test_both_commands_set_themselves_up_and_ci_runs_the_tests_command():
    for marker, end in (("run", "demos/train_decoder.py"), ("test", "-m pytest")):
        (command,) = re.findall(rf"<!-- {marker} -->\n```sh\n(.*)\n```", README)
        assert command.startswith("(test -d .venv || python3 -m venv .venv) && ")
        assert command.endswith(end)
        for word in shlex.split(command):
            if word.startswith("demos/"):
                assert (ROOT / word).is_file()
    assert "<!-- test -->" in (ROOT / ".ci" / "run").read_text()


def test_every_name_in_the_table_exists():
    table = README.split("## Add a primitive")[0].split("| to | use |")[1].split("On the command line")[0]
    homes = (ng, ng.Tape, decoder, optim, parallel, tree, builtins)
    names = set(re.findall(r"`(?:with ng\.)?([A-Za-z_]+)", table)) - {"npgrad", "tape"}
    names |= set(re.findall(r"tape\.(\w+)", table)) - {"html"}
    assert len(names) > 40
    assert [name for name in sorted(names) if not any(hasattr(home, name) for home in homes)] == []


def test_every_file_that_it_names_is_there():
    for path in re.findall(r"(?:demos|npgrad)/[\w/]+\.(?:py|png)", README):
        assert (ROOT / path).is_file(), path
