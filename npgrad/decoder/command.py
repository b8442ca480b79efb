"""`python -m npgrad generate FOLDER "prompt"`: text from a checkpoint, as it is made.

A folder with tokenizer.json has its tokens read by the tokenizers package; without one, a vocabulary of 256 is bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .checkpoint import load, regular_file
from .config import Config
from .generation import generate

BYTES = 256
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what decoders give for the first bytes of a longer character


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folder", help="a checkpoint: config.json, .safetensors and, unless tokens are bytes, tokenizer.json"
    )
    parser.add_argument("prompt", help="the text that is to be continued")

    def option(name: str, kind: type, default: Any, text: str) -> None:
        parser.add_argument(f"--{name}", type=kind, default=default, metavar="N" if kind is int else "X", help=text)

    option("max-new-tokens", int, None, "how many tokens to add at most: 200 unless given, or as many as fit")
    option("temperature", float, 0.0, "divides the logits, above 0; 0, the default, takes the likeliest token")
    option("top-k", int, None, "draw among the N likeliest tokens only (default: among all)")
    option("top-p", float, None, "draw among the likeliest tokens that make up this probability (default: among all)")
    option("repetition-penalty", float, 1.0, "above 1: tokens that were there before are less likely (default: 1)")
    option("seed", int, 0, "of the random numbers: the same one gives the same text (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Print the prompt and its continuation piece by piece; 2 for what can't be read or done, 130 for Ctrl-C."""
    try:
        config, params = load(options.folder)
        encode, decode = tokenizer(config, options.folder)
        prompt = encode(options.prompt)
        if options.max_new_tokens is None:
            options.max_new_tokens = max(0, min(200, config.max_position_embeddings - len(prompt)))
        end = config.eos_token_id
        tokens = generate(
            config,
            params,
            prompt,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            repetition_penalty=options.repetition_penalty,
            stop=end if isinstance(end, list) else [] if end is None else [end],
            seed=options.seed,
        )
        print(options.prompt, end="", flush=True)
        for piece in pieces(prompt, tokens, decode):
            print(piece, end="", flush=True)
        print()
    except KeyboardInterrupt:
        print()
        return 130
    except (OSError, ValueError, IndexError, ImportError) as error:
        print(f"npgrad: {error}", file=sys.stderr)
        return 2
    return 0


def tokenizer(config: Config, folder: str | Path) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """Functions from text to token ids and back; ValueError if the folder says nothing, or nonsense, about them."""
    file = Path(folder) / "tokenizer.json"
    if os.path.lexists(file):
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError("reading tokenizer.json needs tokenizers: pip install 'npgrad[llama]'") from error
        place = regular_file(Path(folder), file.name)
        try:
            found = Tokenizer.from_file(str(place))
        except Exception as error:  # the package raises just this class, whatever is wrong with the file
            raise ValueError(f"{file} can't be read: {error}") from error
        return lambda text: found.encode(text).ids, found.decode
    if config.vocab_size == BYTES:
        return lambda text: list(text.encode()), lambda ids: bytes(ids).decode(errors="replace")
    raise ValueError(f"{folder} has no tokenizer.json, and a vocabulary of {config.vocab_size} isn't one of bytes")


def pieces(prompt: list[int], tokens: Iterable[int], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """What each token adds to the text; the first bytes of a character wait for the others."""
    ids, shown = list(prompt), decode(prompt)
    for token in tokens:
        ids.append(token)
        text = decode(ids)
        if not text.endswith(INCOMPLETE):
            yield text[len(shown) :]
            shown = text
    yield decode(ids)[len(shown) :]
