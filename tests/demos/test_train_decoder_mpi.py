"""The main demo by two processes of a real MPI: what one process has, said once, and no process left waiting."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from npgrad import training

SCRIPT = Path(__file__).parents[2] / "demos" / "train_decoder.py"
SMALL = ["--context", "8", "--width", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--batch", "5"]
DRIVER = f"""
import json, signal, sys
sys.path[:0] = [{str(SCRIPT.parent)!r}, {str(SCRIPT.parents[1])!r}]
import train_decoder as demo
from mpi4py.MPI import COMM_WORLD

demo.check_gradient = lambda seed: None
demo.draw = lambda path, losses, held_out: path.with_name("losses.json").write_text(json.dumps(losses))
clip, calls = demo.optim.clip_by_global_norm, []


def planned(*args):  # what happens to the second process in one of its steps
    calls.append(args)
    if COMM_WORLD.rank == 1 and len(calls) == 4:
        PLAN
    return clip(*args)


demo.optim.clip_by_global_norm = planned
sys.exit(demo.main(sys.argv[1:]))
"""


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"aabb" * 500)
    return file


@pytest.fixture
def launch(text, tmp_path):
    """Run the demo on the text, by two processes of MPI or by one without; what it returned and printed."""
    beside = Path(sys.executable).with_name("mpiexec")  # where the extra puts it
    mpiexec = beside if beside.exists() else shutil.which("mpiexec")

    def run(out, *arguments, processes=2, plan="pass"):
        driver = tmp_path / "driver.py"
        driver.write_text(DRIVER.replace("PLAN", plan))
        command = [sys.executable, driver, "--text", text, "--out", out, *SMALL, *arguments]
        if processes > 1:
            command = [mpiexec, "-n", str(processes), *command, "--mpi"]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)

    return run


def files(out):
    return [(out / name).read_bytes() for name in ("losses.json", "model.safetensors")]


def test_two_processes_do_what_one_does(launch, tmp_path):
    one, two, whole = (tmp_path / name for name in ("one", "two", "whole"))
    expected, done = launch(one, "--steps", "120", processes=1), launch(two, "--steps", "120")
    assert done.stdout.replace(str(two), str(one)) == expected.stdout
    assert done.returncode == expected.returncode == 0
    assert done.stderr.count("  0%|") == 1  # one progress bar
    assert files(two) == files(one)
    launch(whole, "--steps", "120", "--parts", "1", processes=1)
    losses, others = (np.array(json.loads((out / "losses.json").read_text())) for out in (two, whole))
    assert len(losses) == 120
    np.testing.assert_allclose(losses, others, rtol=0, atol=1e-6)


def test_a_wish_to_stop_reaches_both_and_both_go_on(launch, tmp_path):
    out, arguments = tmp_path / "out", ("--steps", "12", "--save-every", "3")
    stopped = launch(out, *arguments, plan="signal.raise_signal(signal.SIGINT)")
    assert stopped.returncode == 130
    assert stopped.stderr.count("Interrupted: 5 steps are saved in") == 1
    assert [int(file.stem[5:]) for file in training.states(out / "states")] == [3, 5]
    launch(out, *arguments, "--resume")
    launch(tmp_path / "whole", *arguments, processes=1)
    assert files(out) == files(tmp_path / "whole")


def test_a_failure_of_one_ends_both(launch, tmp_path):
    done = launch(tmp_path / "out", plan="raise ArithmeticError('of one')")
    assert done.returncode != 0
    assert done.stderr.count("ArithmeticError: of one\n") == 1
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_what_cannot_be_done_is_said_once(launch, tmp_path):
    done = launch(tmp_path / "out", "--batch", "1")
    assert done.returncode == 2
    assert done.stderr.count("error: 2 processes can't share --batch 1: each needs a row of it\n") == 1


NO_PACKAGE = "sys.modules['mpi4py'] = None"
NO_LIBRARY = """
class Finder:
    def find_spec(self, name, *args):
        if name == "mpi4py":
            raise RuntimeError("cannot load MPI library\\nlibmpi.so: no such file")
sys.meta_path.insert(0, Finder())"""


@pytest.mark.parametrize(("lacking", "said"), [(NO_PACKAGE, "mpi4py"), (NO_LIBRARY, "cannot load MPI library")])
def test_a_missing_mpi_is_named_with_its_remedy(lacking, said, tmp_path):
    code = f"import sys, runpy\n{lacking}\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    command = [sys.executable, "-c", code, "--mpi"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parents[1])
    assert done.returncode == 1
    assert re.fullmatch(rf"--mpi needs mpi4py and an MPI \(.*{said}.*\): pip install 'npgrad\[mpi\]'\n", done.stderr)


def test_the_mpiexec_of_another_mpi_is_refused(monkeypatch, text, tmp_path):
    """Its processes wouldn't see each other, and each would train alone, all in one folder."""
    mpi = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD, mpi.get_vendor = types.SimpleNamespace(rank=0, size=1), lambda: ("Another MPI", (1, 0))
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    sys.modules["mpi4py"].MPI = mpi
    monkeypatch.setenv("PMI_SIZE", "2")
    main = runpy.run_path(str(SCRIPT))["main"]
    with pytest.raises(SystemExit, match="mpiexec started 2 processes, but mpi4py's Another MPI sees 1: use Another"):
        main(["--mpi", "--text", str(text), "--out", str(tmp_path / "out"), *SMALL])
