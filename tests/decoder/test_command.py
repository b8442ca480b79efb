"""`python -m npgrad generate`: bytes and tokenizers, streaming, refusals in a line."""

import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from npgrad import __main__, decoder
from npgrad.decoder import command

SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
         "max_position_embeddings": 64}  # fmt: skip
WORDS = ["the", "cat", "sat", "on", "mat"]


def checkpoint(folder, vocab_size=256, **changes):
    config = decoder.Config(vocab_size=vocab_size, **SIZES, **changes)
    params = decoder.init(config, seed=0)
    decoder.save(folder, config, params)
    return config, params


def write_tokenizer(folder):
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="the"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_bytes(tmp_path, capsys):
    config, params = checkpoint(tmp_path)
    assert __main__.main(["generate", str(tmp_path), "caf\N{LATIN SMALL LETTER E WITH ACUTE}"]) == 0
    prompt = list("caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode())
    tokens = list(decoder.generate(config, params, prompt, max_new_tokens=64 - 5))
    assert capsys.readouterr().out == bytes([*prompt, *tokens]).decode(errors="replace") + "\n"


def test_a_tokenizer_and_every_setting(tmp_path, capsys):
    config, params = checkpoint(tmp_path, vocab_size=5, eos_token_id=4)
    write_tokenizer(tmp_path)
    settings = {
        "max_new_tokens": 20,
        "temperature": 1.5,
        "top_k": 4,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
        "seed": 3,
    }
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert __main__.main(["generate", str(tmp_path), "the cat", *options]) == 0
    tokens = list(decoder.generate(config, params, [0, 1], stop=[4], **settings))
    assert tokens[-1] == 4 or len(tokens) == 20
    assert capsys.readouterr().out == " ".join(["the", "cat", *(WORDS[t] for t in tokens)]) + "\n"


def test_a_character_of_several_bytes_is_shown_when_it_is_whole():
    ids = list("a\N{EURO SIGN}b".encode())
    shown = list(command.pieces(ids[:1], ids[1:], lambda ids: bytes(ids).decode(errors="replace")))
    assert shown == ["\N{EURO SIGN}", "b", ""]
    cut = list(command.pieces(ids[:1], ids[1:3], lambda ids: bytes(ids).decode(errors="replace")))
    assert cut == ["\N{REPLACEMENT CHARACTER}"]


def test_the_module_runs(tmp_path):
    checkpoint(tmp_path)
    line = [sys.executable, "-m", "npgrad", "generate", str(tmp_path), "def ", "--max-new-tokens", "3"]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=True)
    assert done.stdout.startswith("def ")
    assert done.stderr == ""


def test_without_a_tokenizer_only_bytes_are_understood(tmp_path, capsys):
    checkpoint(tmp_path, vocab_size=5)
    assert __main__.main(["generate", str(tmp_path), "the cat"]) == 2
    assert "has no tokenizer.json, and a vocabulary of 5 isn't one of bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], "temperature must be"),
        (["--max-new-tokens", "100"], "exceed max_position_embeddings 64"),
        (["--top-k", "0"], "top_k"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments, words, tmp_path, capsys):
    checkpoint(tmp_path)
    assert __main__.main(["generate", str(tmp_path), "a", *arguments]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_missing_folder_and_a_missing_package(tmp_path, capsys, monkeypatch):
    assert __main__.main(["generate", str(tmp_path / "none"), "a"]) == 2
    assert "config.json" in capsys.readouterr().err
    checkpoint(tmp_path, vocab_size=5)
    write_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert __main__.main(["generate", str(tmp_path), "a"]) == 2
    assert "pip install 'npgrad[llama]'" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": 3}'])
def test_a_tokenizer_that_cannot_be_read_is_said_in_a_line(content, tmp_path, capsys):
    checkpoint(tmp_path, vocab_size=5)
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert __main__.main(["generate", str(tmp_path), "a"]) == 2
    printed = capsys.readouterr()
    assert "tokenizer.json can't be read" in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(("target", "words"), [("/dev/zero", "not a regular file"), ("../x", "out of its folder")])
def test_a_tokenizer_is_read_from_this_folder(target, words, tmp_path, capsys):
    folder = tmp_path / "folder"
    checkpoint(folder, vocab_size=5)
    (tmp_path / "x").write_text("{}")
    (folder / "tokenizer.json").symlink_to(target)
    assert __main__.main(["generate", str(folder), "a"]) == 2
    assert words in capsys.readouterr().err


def test_ctrl_c_ends_the_line(tmp_path, capsys, monkeypatch):
    checkpoint(tmp_path)

    def interrupted(*args):
        yield "x"
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "pieces", interrupted)
    assert __main__.main(["generate", str(tmp_path), "a"]) == 130
    assert capsys.readouterr().out == "ax\n"
