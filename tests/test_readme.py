"""The README is true: its code runs, in order, and its commands are the ones that are used."""

import re
import shlex
from pathlib import Path

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
    import npgrad as ng
    from npgrad import optim, tree

    table = README.split("## Add a primitive")[0].split("| to | use |")[1]
    names = set(re.findall(r"`(\w+)", table)) - {"f", "args", "python"}
    assert len(names) > 25
    missing = {
        n
        for n in names
        if not any(hasattr(home, n) for home in (ng, optim, tree, ng.Tape)) and n not in ("tape", "npgrad")
    }
    assert missing == set()
