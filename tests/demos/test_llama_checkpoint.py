"""The checkpoint demo: on a model of its own, on a reference checkpoint, with and without transformers."""

import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from oracle import DATA
from tokenizers import Tokenizer, models, pre_tokenizers

import npgrad as ng
from npgrad import decoder

SCRIPT = Path(__file__).parents[2] / "demos" / "llama_checkpoint.py"
QUICK = ["--steps", "6", "--context", "24", "--new-tokens", "8", "--coordinates", "1"]
BASE = DATA / "tiny_llama" / "base"


@pytest.fixture
def demo(monkeypatch):
    spec = importlib.util.spec_from_file_location("llama_checkpoint", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # as if transformers were not installed
    return module


def test_a_model_of_its_own(demo, tmp_path, capsys):
    assert demo.main([*QUICK, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert int(re.search(r"(\d+) sampled coordinates pass", printed)[1]) == 21  # one of each parameter
    before, after = map(float, re.search(r"loss (\S+) -> (\S+)", printed).groups())
    assert after < before
    assert "the same logits" in printed
    assert "transformers is not installed" in printed
    config, params = decoder.load(tmp_path)
    assert config.vocab_size == 256
    tokens = np.array([list(demo.TEXT.encode())[:24]])[:, :23]
    assert float(decoder.loss(config, params, tokens[:, :-1], tokens[:, 1:])) == pytest.approx(after, abs=1e-3)


def test_a_folder_without_a_tokenizer(demo, tmp_path, capsys):
    assert demo.main([str(BASE), *QUICK, "--out", str(tmp_path)]) == 0
    assert "bytes modulo 97 stand in for tokens" in capsys.readouterr().out
    assert decoder.load(tmp_path)[0] == decoder.load(BASE)[0]


def test_a_tokenizer_goes_along(demo, tmp_path, capsys):
    source, words = tmp_path / "source", ["one", "two", "three", "four"]
    shutil.copytree(BASE, source)
    found = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="one"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.save(str(source / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("one two three four " * 4)
    options = ["--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "out")]
    assert demo.main([str(source), *QUICK, *options]) == 0
    assert "'one two' continues" in capsys.readouterr().out
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(("difference", "status"), [(1e-7, 0), (1e-3, 1)])
def test_transformers_decides_too_where_it_is_installed(demo, difference, status, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(demo, "difference_there", lambda folder, logits, tokens: difference)
    assert demo.main([str(BASE), *QUICK, "--out", str(tmp_path)]) == status
    assert f"opened in transformers: logits differ by {difference:.1e}" in capsys.readouterr().out


def test_sampled_coordinates_are_those_of_the_loss(demo, monkeypatch):
    config, params = decoder.load(BASE, np.float64)
    tokens, checked = np.array([[5, 3, 8, 3]]), []
    monkeypatch.setattr(ng, "check_grads", lambda f, samples: checked.append((f, samples)))
    demo.check_sampled_coordinates(config, params, tokens, 4, np.random.default_rng(0))
    (f, samples), expected = checked[0], ng.grad(decoder.loss, 1)(config, params, tokens[:, :-1], tokens[:, 1:])
    assert f(samples) == decoder.loss(config, params, tokens[:, :-1], tokens[:, 1:])
    for (path, g), whole in zip(ng.tree.items(ng.grad(f)(samples)), ng.tree.leaves(expected), strict=True):
        assert g.size == 4
        assert np.isclose(g[:, None], whole.reshape(-1), rtol=1e-12, atol=1e-15).any(axis=1).all(), path


def test_a_wrong_gradient_stops_it(demo, tmp_path, capsys, monkeypatch):
    @ng.fused(ng.feed_forward.reference)
    def faulty(x, *weights):
        out, pullback = ng.feed_forward.forward(x, *weights)
        return out, lambda g: pullback(g * 0.5)

    monkeypatch.setattr(decoder.model, "feed_forward", faulty)
    assert demo.main([str(BASE.parent / "qwen2_bias"), *QUICK, "--out", str(tmp_path / "new")]) == 2
    assert "fail" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-folder"], "config.json"),
        (["--text", "EMPTY"], "at least two tokens"),
        (["--text", "no-file"], "no-file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(demo, arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").write_text("")
    assert demo.main([*QUICK, *arguments]) == 2
    printed = capsys.readouterr().err
    assert re.fullmatch(r"error: .+\n", printed)
    assert words in printed


def test_ctrl_c(demo, tmp_path, capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "fine_tune", interrupted)
    assert demo.main([str(BASE), *QUICK, "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "\nInterrupted\n"


def test_ctrl_c_during_the_check(demo, tmp_path, capsys, monkeypatch):
    class Stopped:
        interrupted = True

    monkeypatch.setattr(ng, "check_grads", lambda *args: Stopped())
    assert demo.main([str(BASE), *QUICK, "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "\nInterrupted\n"
