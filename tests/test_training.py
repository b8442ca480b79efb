"""States of training: bit for bit, whole or not at all, refused with the reason; a Ctrl-C that waits for the step."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from stress import flat_memory, fuzz_files

import npgrad as ng
from npgrad import optim, training
from npgrad.safetensors_file import read_metadata, write_tensors

OPTIMIZERS = {
    "AdamW": lambda p: optim.AdamW(p, optim.cosine_schedule(0.1, 20, warmup=3), weight_decay=0.1),
    "SGD": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
}
GENERATORS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}


def parameters():
    rng = np.random.default_rng(0)
    return {
        "w": [rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(3, 2))],
        "half": np.ones(3, np.float16),
        "scale": np.array(1.5),
    }


def loss(p, x):
    return np.sum(np.tanh(x @ p["w"][0] * p["half"]) @ p["w"][1]) * p["scale"]


def go_on(optimizer, rng, steps):
    """Some steps on random data; the losses."""
    losses = []
    for _ in range(steps):
        value, gradients = ng.value_and_grad(loss)(optimizer.params, rng.normal(size=(5, 4)))
        gradients["half"] = gradients["half"] if optimizer.step % 2 else None  # counts that differ among leaves
        optimizer.update(gradients)
        losses.append(float(value))
    return losses


def fresh(kind="AdamW", generator="PCG64", seed=0):
    return OPTIMIZERS[kind](parameters()), np.random.Generator(GENERATORS[generator](seed))


def equal(a, b):
    for (path, x), y in zip(ng.tree.items(a), ng.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype, path
        np.testing.assert_array_equal(x, y, err_msg=path)


@pytest.fixture
def folder(tmp_path):
    """A folder with the states after 3, 4 and 5 steps, of which the last two are kept."""
    optimizer, rng = fresh()
    go_on(optimizer, rng, 2)
    for step in (3, 4, 5):
        go_on(optimizer, rng, 1)
        training.save(tmp_path / "run", optimizer, rng, step=step, extra={"place": step * 7})
    return tmp_path / "run"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("generator", GENERATORS)
def test_it_goes_on_bit_for_bit(kind, generator, tmp_path):
    whole = go_on(*fresh(kind, generator), 9)
    optimizer, rng = fresh(kind, generator)
    first = go_on(optimizer, rng, 4)
    extra = {"losses": first, "none": None, "text": "ä"}
    training.save(tmp_path, optimizer, rng, step=4, extra=extra)
    again, other = fresh(kind, generator, seed=99)
    found = training.resume(tmp_path, again, other)
    assert found == (4, extra)
    equal(again.state(), optimizer.state())
    assert first + go_on(again, other, 5) == whole


def test_the_last_two_are_kept(folder):
    assert [file.name for file in training.states(folder)] == [
        "step-000000004.safetensors",
        "step-000000005.safetensors",
    ]
    assert len(contents(folder)) == 2
    assert training.states(folder / "nowhere") == []


def test_a_run_that_starts_again_leaves_later_states_alone(folder):
    optimizer, rng = fresh()
    for step in (1, 2, 3):
        training.save(folder, optimizer, rng, step=step)
    assert [int(file.name[5:14]) for file in training.states(folder)] == [2, 3, 4, 5]


def test_what_killed_runs_left_is_cleared_away(folder):
    (folder / ".step-000000006.safetensors.123").write_bytes(b"half a st")
    training.save(folder, *fresh(), step=6)
    assert sorted(contents(folder)) == ["step-000000005.safetensors", "step-000000006.safetensors"]


def test_others_can_open_it(folder):
    """The file is what the safetensors library reads, with the names of the tree and a header in JSON."""
    tensors = load_file(training.states(folder)[-1])
    assert {"state['params']['w'][0]", "state['counts']['half']", "state['step']"} < tensors.keys()
    assert tensors["state['counts']['half']"] == 2
    described = read_metadata(training.states(folder)[-1])
    assert described["step"] == "5"
    assert json.loads(described["extra"]) == {"place": 35}
    assert json.loads(described["random"])["bit_generator"] == "PCG64"


def rewritten(file, **changes):
    """The file with some of its metadata changed, None: left out."""
    metadata = {**read_metadata(file), **changes}
    save_file(load_file(file), file, {name: value for name, value in metadata.items() if value is not None})


FOREIGN = {"model": np.ones(3, np.float32)}
DAMAGE = {
    "truncated": (lambda f: f.write_bytes(f.read_bytes()[:-5]), "can't be read: .* has offsets .* bytes of data"),
    "nearly empty": (lambda f: f.write_bytes(f.read_bytes()[:100]), "can't be read: .* a header of .* doesn't fit"),
    "empty": (lambda f: f.write_bytes(b""), "can't be read: .* a header of 0 bytes doesn't fit a file of 0 bytes"),
    "zeros": (lambda f: f.write_bytes(bytes(f.stat().st_size)), "can't be read: .* not valid JSON"),
    "text": (lambda f: f.write_text("a diary, not a state"), "can't be read: .* a header of"),
    "foreign": (lambda f: save_file(FOREIGN, f, {"format": "pt"}), "is not a training state: its format is 'pt'"),
    "bare": (lambda f: save_file(FOREIGN, f), "is not a training state: its format is 'not given'"),
    "newer": (lambda f: rewritten(f, version="2"), "has format version 2, but this npgrad reads 1"),
    "no version": (lambda f: rewritten(f, version=None), "has format version None, but this npgrad reads 1"),
    "no random state": (lambda f: rewritten(f, random=None), "can't be read: 'random'"),
    "odd step": (lambda f: rewritten(f, step="many"), "can't be read: invalid literal"),
    "odd random state": (lambda f: rewritten(f, random="[1]"), "of another model, optimiser or random generator"),
    "another generator": (lambda f: training.save(f.parent, *fresh(generator="SFC64"), step=5), "random generator:"),
    "another optimiser": (lambda f: training.save(f.parent, *fresh("SGD"), step=5), "another .* the file lacks state"),
    "more": (lambda f: training.save(f.parent, optim.AdamW({**parameters(), "b": np.ones(1)}, 0.1), fresh()[1], step=5),
             "another model or optimiser: only the file has state.*b'"),
    "another width": (
        lambda f: training.save(f.parent, optim.AdamW({**parameters(), "scale": np.ones(2)}, 0.1), fresh()[1], step=5),
        r"another model.*'scale'\] is .*\(2,\), but this optimiser has .*\(\)"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_what_cannot_be_gone_on_from_is_refused_and_the_previous_one_offered(damage, words, folder):
    newest = training.states(folder)[-1]
    damage(newest)
    optimizer, rng = fresh(seed=5)
    before, drawn = optimizer.state(), rng.bit_generator.state
    with pytest.raises(training.StateError, match=f"step-000000005.safetensors.*{words}") as error:
        training.resume(folder, optimizer, rng)
    assert "remove it to go on from step-000000004.safetensors" in str(error.value)
    equal(optimizer.state(), before)
    assert rng.bit_generator.state == drawn
    assert training.restore(error.value.previous, optimizer, rng) == (4, {"place": 28})


def test_nothing_to_offer(folder):
    for file in training.states(folder):
        file.write_bytes(b"broken!!")
    with pytest.raises(training.StateError, match="there is no earlier one that can be read") as error:
        training.resume(folder, *fresh())
    assert error.value.previous is None
    with pytest.raises(training.StateError, match=r"has no step-\*\.safetensors to go on from"):
        training.resume(folder / "nowhere", *fresh())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_files_and_training_as_they_were(call, folder, monkeypatch):
    optimizer, rng = fresh()
    training.resume(folder, optimizer, rng)
    files, state = contents(folder), optimizer.state()

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match=r"step-000000006\.safetensors could not be written: Input/output error"):
        training.save(folder, optimizer, rng, step=6)
    assert contents(folder) == files
    equal(optimizer.state(), state)
    monkeypatch.undo()
    assert training.save(folder, optimizer, rng, step=6).exists()


def fill_up(folder, limit):
    """Save under a limit on the size of files, which fails as a full disk does."""
    import resource  # not on every platform

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        training.save(folder, *fresh(), step=6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("share", [0, 0.003, 0.5, 0.9])
def test_a_disk_that_fills_up(share, folder):
    files = contents(folder)
    limit = int(share * len(files["step-000000005.safetensors"]))
    with pytest.raises(OSError, match=r"step-000000006\.safetensors could not be written: File too large"):
        fill_up(folder, limit)
    assert contents(folder) == files


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "run").write_text("here already")
    with pytest.raises(FileExistsError):
        training.save(tmp_path / "run", *fresh(), step=1)
    assert (tmp_path / "run").read_text() == "here already"


def test_arrays_and_extras_that_no_file_can_hold(tmp_path):
    optimizer = optim.SGD({"w": np.ones(2, np.longdouble)}, 0.1)
    with pytest.raises(TypeError, match=r"state\['params'\]\['w'\] is .*: a .safetensors file holds float64, float32"):
        training.save(tmp_path, optimizer, fresh()[1], step=1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        training.save(tmp_path, *fresh(), step=1, extra={"rng": fresh()[1]})
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", ">f2", "<i8", ">i2", "u1"])
def test_arrays_of_any_order_and_layout(dtype, tmp_path):
    a = np.arange(12).reshape(3, 4).astype(dtype).T[::-1]
    write_tensors(tmp_path / "x", {"odd": np.ones(3, np.uint8), "a": a, "none": np.ones((0, 2), dtype)}, {})
    found = load_file(tmp_path / "x")
    np.testing.assert_array_equal(found["a"], a)
    assert found["none"].shape == (0, 2)


def test_parameters_in_another_byte_order_go_on(tmp_path):
    made = [optim.AdamW({"w": np.array([1.0, -2.0], dtype)}, 0.1) for dtype in (">f4", ">f4", "<f4")]
    made[0].update({"w": np.array([3.0, 0.5])})
    training.save(tmp_path, made[0], np.random.default_rng(0), step=1)
    for other in made[1:]:
        training.resume(tmp_path, other, np.random.default_rng(0))
        np.testing.assert_array_equal(other.params["w"], made[0].params["w"])
    assert made[1].params["w"].dtype == ">f4"


def test_ctrl_c_waits_for_the_step_and_the_second_does_not():
    with training.stop_on_interrupt() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_have_no_signals():
    seen = []

    def run():
        with training.stop_on_interrupt() as stopped:
            seen.append(stopped())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


def test_killed_runs_go_on_as_if_never_stopped(tmp_path):
    script = Path(__file__).with_name("stress") / "kill_runs.py"
    done = subprocess.run(
        [sys.executable, script, "--kills", "4", "--steps", "120"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kills, 0 unreadable states" in done.stdout


def test_a_disk_filled_up_again_and_again_loses_nothing():
    script = Path(__file__).with_name("stress") / "full_disk.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "20 tries, 20 writes refused, 0 losses\n"


def test_memory_stays_flat():
    second, last = flat_memory.peaks(6000)[1::2]  # the first fills what Python keeps for its next 2,000 tuples
    assert last < 1.01 * second


def test_damaged_files_and_configurations_are_read_or_refused(tmp_path):
    headers = fuzz_files.fuzz_headers(1500, 1, tmp_path)
    assert headers.read > 10
    assert headers.refused > 1000
    configs = fuzz_files.fuzz_configs(400, 1, tmp_path)
    assert configs.read > 50
    assert configs.refused > 100
