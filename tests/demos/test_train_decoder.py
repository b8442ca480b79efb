"""The main demo, run with few steps and small sizes: what it prints, writes and refuses."""

import importlib.util
import itertools
import math
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import npgrad as ng
from npgrad import decoder, optim, training

SCRIPT = Path(__file__).parents[2] / "demos" / "train_decoder.py"
SMALL = ["--context", "8", "--width", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--batch", "4"]


@pytest.fixture
def demo():
    spec = importlib.util.spec_from_file_location("train_decoder", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quick(demo, monkeypatch):
    """The demo without its gradient check, which takes most of a short run's time."""
    monkeypatch.setattr(demo, "check_gradient", lambda seed: None)
    return demo


@pytest.fixture
def text(tmp_path):
    """Pairs of letters: the next one follows from the last two, and one alone says little."""
    file = tmp_path / "text.txt"
    file.write_bytes(b"aabb" * 500)
    return file


def held_out_losses(printed):
    return {name: float(value) for name, value in re.findall(r"^  (\w+) +(\d+\.\d{4})$", printed, re.M)}


def test_it_checks_trains_compares_samples_and_writes(demo, text, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert demo.main(["--text", str(text), "--out", str(out), "--steps", "80", *SMALL]) == 0
    printed = capsys.readouterr()

    coordinates, error = re.search(r"^largest error of ([\d,]+) coordinates: (\S+)$", printed.out, re.M).groups()
    assert int(coordinates.replace(",", "")) >= 3000
    assert float(error) <= 4e-6
    rows = re.findall(r"^(params\S+) .* (\d+) +\S+ +\S+ +\[.*pass$", printed.out, re.M)
    assert {"params['embedding']", "params['blocks'][1]['wk']", "params['head']"} < {path for path, _ in rows}
    assert sum(int(count) for _, count in rows) == int(coordinates.replace(",", ""))

    losses = held_out_losses(printed.out)
    assert list(losses) == ["unigram", "bigram", "decoder"]
    assert losses["decoder"] < losses["bigram"] < losses["unigram"] + 0.01
    assert "Samples\n--\ndef " in printed.out
    assert re.search(r"tokens/s, loss=\d", printed.err)

    png = (out / "loss.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) >= 1000  # pixels across
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors", "loss.png"}


def test_the_weights_written_are_those_that_were_measured(quick, text, tmp_path, capsys):
    quick.main(["--text", str(text), "--out", str(tmp_path), "--steps", "20", *SMALL])
    config, params = decoder.load(tmp_path)
    assert (config.hidden_size, config.num_key_value_heads, config.max_position_embeddings) == (16, 1, 8)
    assert {p.dtype for p in ng.tree.leaves(params)} == {np.dtype(np.float32)}
    held_out = quick.read_text([text], 8)[1]
    starts = np.linspace(0, len(held_out) - 9, 1 + 2**14 // 8).astype(int)
    expected = quick.loss(config, params, quick.windows_at(held_out, starts, 8))
    assert held_out_losses(capsys.readouterr().out)["decoder"] == pytest.approx(float(expected), abs=1e-4)


def run_for_weights(demo, text, out, seed):
    demo.main(["--text", str(text), "--out", str(out), "--steps", "10", "--seed", str(seed), *SMALL])
    return (out / "model.safetensors").read_bytes()


def test_the_seed_decides_everything(quick, text, tmp_path, capsys):
    first = run_for_weights(quick, text, tmp_path / "1", seed=3)
    once = capsys.readouterr().out.replace(str(tmp_path / "1"), "")
    again = run_for_weights(quick, text, tmp_path / "2", seed=3)
    assert capsys.readouterr().out.replace(str(tmp_path / "2"), "") == once  # losses and sample
    assert again == first
    assert run_for_weights(quick, text, tmp_path / "3", seed=4) != first


def test_losses_are_the_same_to_the_bit(demo):
    config = decoder.Config(
        vocab_size=256, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=12,
    )  # fmt: skip
    text = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 20, np.uint8).astype(np.int64)
    options = demo.parse(["--steps", "30", "--batch", "4"])

    def losses():
        found, optimizer = [], demo.optimizer_for(decoder.init(config, seed=0), options)
        demo.train(config, optimizer, text, options, np.random.default_rng(0), found, lambda *state: True, demo.Alone())
        assert {p.dtype for p in ng.tree.leaves(optimizer.params)} == {np.dtype(np.float32)}
        return found

    first = losses()
    assert losses() == first
    assert np.mean(first[-5:]) < first[0] - 1


def test_too_few_steps_lose_to_the_bigram_and_say_so(quick, text, tmp_path, capsys):
    assert quick.main(["--text", str(text), "--out", str(tmp_path), "--steps", "1", *SMALL]) == 1
    printed = capsys.readouterr().out
    assert "did not beat the bigram" in printed
    assert held_out_losses(printed)["decoder"] > held_out_losses(printed)["bigram"]
    assert (tmp_path / "model.safetensors").exists()


def test_count_models_are_counted_right(demo):
    train, held_out = b"abracadabra alakazam", b"abra zebra"
    windows = np.array([list(held_out[i : i + 5]) for i in range(len(held_out) - 4)])
    letters, pairs, before = Counter(train), Counter(itertools.pairwise(train)), Counter(train[:-1])
    unigram = {c: (letters[c] + 1) / (len(train) + 256) for c in range(256)}
    losses = {"unigram": [], "bigram": []}
    for window in windows.tolist():
        for a, b in itertools.pairwise(window):
            losses["unigram"].append(-math.log(unigram[b]))
            losses["bigram"].append(-math.log((pairs[a, b] + 16 * unigram[b]) / (before[a] + 16)))
    found = demo.count_models(np.frombuffer(train, np.uint8).astype(np.int64), windows)
    assert found == pytest.approx([np.mean(values) for values in losses.values()], rel=1e-12)


def test_count_models_are_distributions(demo):
    text = np.frombuffer(b"some text with an unseen byte", np.uint8).astype(np.int64)
    every = np.array([[ord("e"), b] for b in range(256)])
    for before in (ord("e"), 0):  # seen and never seen
        every[:, 0] = before
        for model in (0, 1):
            total = sum(math.exp(-demo.count_models(text, pair[None])[model]) for pair in every)
            assert total == pytest.approx(1, rel=1e-9)


def test_held_out_text_is_the_last_tenth_and_no_other(demo, tmp_path):
    files = [tmp_path / "b.txt", tmp_path / "a.txt"]
    for file, content in zip(files, (b"0123456789" * 7, b"xyz" * 11)):
        file.write_bytes(content)
    train, held_out = demo.read_text(files, 8)
    assert bytes([*train, *held_out]) == b"0123456789" * 7 + b"xyz" * 11  # in the order given
    assert len(held_out) == 11


def test_the_default_text_is_the_standard_library_in_order(demo):
    train, held_out = demo.read_text([], 64)
    whole = bytes(np.concatenate([train, held_out]).astype(np.uint8))
    names = ["abc", "argparse", "heapq", "zipfile" if sys.version_info < (3, 12) else "weakref"]
    sources = [Path(sys.modules["abc"].__file__).with_name(f"{name}.py").read_bytes() for name in names]
    places = [whole.index(source) for source in sources]
    assert places == sorted(places)
    assert len(whole) > 1_000_000


WRONG = {
    "missing file": (["--text", "no-such-file.txt"], "no-such-file.txt"),
    "empty text": (["--text", "EMPTY"], r"the text has 0 bytes, but at least 81"),
    "short text": (["--text", "SHORT"], r"the text has 80 bytes, but at least 81"),
    "output is a file": (["--text", "SHORT", "--context", "2", "--out", "SHORT"], "SHORT"),
    "negative seed": (["--text", "SHORT", "--context", "2", "--seed", "-1"], "non-negative"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_done_is_said_in_a_line(quick, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").write_bytes(b"")
    Path("SHORT").write_bytes(b"x" * 80)
    assert quick.main([*SMALL, *arguments]) == 2
    printed = capsys.readouterr()
    assert re.search(message, printed.err)
    assert re.fullmatch(r"error: .+\n", printed.err)
    assert {path.name for path in tmp_path.iterdir()} <= {"EMPTY", "SHORT", "out"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--width", "12", "--heads", "4"], "twice --heads"),
        (["--heads", "4", "--kv-heads", "3"], "--kv-heads"),
        (["--steps", "0"], "at least 1"),
        (["--heads", "0"], "at least 1"),
        (["--batch", "few"], "invalid int value"),
    ],
)
def test_sizes_that_make_no_decoder_are_refused(demo, arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        demo.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_a_machine_without_library_sources_is_told_what_to_do(quick, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quick.sysconfig, "get_path", lambda name: str(tmp_path))
    assert quick.main(["--out", str(tmp_path)]) == 2
    assert f"the Python source in {tmp_path} has 0 bytes" in capsys.readouterr().err


def test_a_wrong_gradient_stops_it(demo, text, tmp_path, monkeypatch, capsys):
    check, right = ng.check_grads, demo.loss

    @ng.primitive
    def faulty(x):
        return x

    faulty.defvjp(lambda out, x: lambda g: g * (1 + 1e-6))
    monkeypatch.setattr(demo, "loss", lambda *args: faulty(right(*args)))
    monkeypatch.setattr(  # the last norm alone: the whole decoder takes seconds
        ng, "check_grads", lambda f, params: check(lambda norm: f(params | {"norm": norm}), params["norm"])
    )
    assert demo.main(["--text", str(text), "--out", str(tmp_path), *SMALL]) == 2
    assert re.match("error: .* fail, 12 coordinates", capsys.readouterr().err)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.fixture
def interrupt(quick, monkeypatch):
    """Have Ctrl-C arrive in the middle of these calls of a run's clipping, counted from 1; the count of all calls."""
    clip, calls = optim.clip_by_global_norm, []

    def plan(*which):
        def interrupted(*args):
            calls.append(args)
            if len(calls) in which:
                signal.raise_signal(signal.SIGINT)
            return clip(*args)

        monkeypatch.setattr(optim, "clip_by_global_norm", interrupted)
        return calls

    return plan


def test_ctrl_c_saves_and_resuming_goes_on_bit_for_bit(quick, text, tmp_path, interrupt, capsys):
    arguments = ["--text", str(text), "--steps", "12", "--save-every", "3", *SMALL]
    quick.main([*arguments, "--out", str(tmp_path / "whole")])
    expected, printed = (tmp_path / "whole" / "model.safetensors").read_bytes(), capsys.readouterr().out
    stopped = [*arguments, "--out", str(tmp_path / "out")]
    calls = interrupt(4, 9)
    assert quick.main(stopped) == 130
    assert len(calls) == 4
    message = f"Interrupted: 4 steps are saved in {tmp_path / 'out' / 'states'}, --resume goes on with them"
    assert capsys.readouterr().err.endswith(f"\n{message}\n")
    assert quick.main(stopped) == 2  # it would start again
    assert "holds a run that isn't finished: --resume" in capsys.readouterr().err
    assert quick.main([*stopped, "--resume"]) == 130
    capsys.readouterr()
    assert quick.main([*stopped, "--resume"]) == 1  # 12 steps don't beat the bigrams
    assert len(calls) == 12
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == expected
    assert capsys.readouterr().out.replace(str(tmp_path / "out"), str(tmp_path / "whole")) == printed
    assert not (tmp_path / "out" / "states").exists()


def test_a_second_ctrl_c_does_not_wait(quick, text, tmp_path, interrupt, capsys, monkeypatch):
    interrupt(2)
    monkeypatch.setattr(quick.training, "save", lambda *args, **kwargs: signal.raise_signal(signal.SIGINT))
    assert quick.main(["--text", str(text), "--out", str(tmp_path / "out"), *SMALL]) == 130
    assert capsys.readouterr().err.endswith("\nInterrupted\n")


def test_a_run_with_other_settings_is_not_gone_on_with(quick, text, tmp_path, interrupt, capsys):
    arguments = ["--text", str(text), "--out", str(tmp_path / "out"), *SMALL]
    interrupt(1)
    quick.main(arguments)
    assert quick.main([*arguments, "--resume", "--seed", "1", "--batch", "8"]) == 2
    assert capsys.readouterr().err.endswith("can't be gone on with: its seed was 0, not 1, batch was 4, not 8\n")
    assert quick.main(["--text", str(text), "--out", str(tmp_path / "new"), "--resume", *SMALL]) == 2
    assert "has no step-*.safetensors to go on from" in capsys.readouterr().err


def test_a_full_disk_does_not_end_training(quick, text, tmp_path, interrupt, monkeypatch, capsys):
    """It says so once, goes on, tries again, and stops after Ctrl-C when saving works again."""
    save, attempts = training.save, []

    def full_at_first(*args, **kwargs):
        attempts.append(kwargs["step"])
        if len(attempts) < 4:
            raise OSError(28, "No space left on device")
        return save(*args, **kwargs)

    monkeypatch.setattr(training, "save", full_at_first)
    interrupt(4)
    arguments = ["--text", str(text), "--out", str(tmp_path), "--steps", "50", "--save-every", "2", *SMALL]
    assert quick.main(arguments) == 130
    assert attempts == [2, 4, 5, 6]
    printed = capsys.readouterr().err
    assert printed.count("No space left on device. Training goes on; nothing is lost") == 1
    assert [file.name for file in training.states(tmp_path / "states")] == ["step-000000006.safetensors"]


def test_ctrl_c_during_the_check_ends_it_too(demo, text, tmp_path, monkeypatch, capsys):
    class Stopped:
        interrupted = True

    monkeypatch.setattr(ng, "check_grads", lambda *args: Stopped())
    assert demo.main(["--text", str(text), "--out", str(tmp_path), *SMALL]) == 130
    assert capsys.readouterr().err == "\nInterrupted\n"


@pytest.mark.parametrize("extra", ["tqdm", "matplotlib"])
def test_a_missing_extra_is_named_with_its_remedy(extra):
    code = f"import sys, runpy; sys.modules[{extra!r}] = None; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SCRIPT.parents[1])
    assert done.returncode == 1
    assert re.fullmatch(rf"This demo needs {extra}\S*: pip install 'npgrad\[demos\]'\n", done.stderr)
