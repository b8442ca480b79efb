"""Take a Llama-shaped checkpoint through everything: logits, generation, fine-tuning, a checked gradient, export.

    python demos/llama_checkpoint.py                  a small random model, made for the occasion
    python demos/llama_checkpoint.py FOLDER           config.json, .safetensors, tokenizer.json if there is one

The export goes to --out. Where torch and transformers are installed, the export is opened there and logits are
compared. The exit code is 1 if two ways of computing the same thing disagree.
"""

import argparse
import importlib.util
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import npgrad as ng
from npgrad import decoder, optim
from npgrad.decoder.command import pieces, tokenizer

TEXT = """One object used with different offsets never returns the first one's angles. A query that may see nothing gets
zeros, and a zero gradient. A mask belongs to the scores, a rotation to queries and keys, and values are left alone."""


def make_checkpoint(folder):
    """A small random model whose tokens are bytes."""
    config = decoder.Config(
        vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    decoder.save(folder, config, decoder.init(config, seed=0))


def encoder(config, folder):
    """Functions from text to tokens and back; without a tokenizer, bytes wrapped into the vocabulary stand in."""
    try:
        return tokenizer(config, folder)
    except ValueError as error:
        print(f"{error}: bytes modulo {config.vocab_size} stand in for tokens")
        return lambda text: [b % config.vocab_size for b in text.encode()], lambda ids: " ".join(map(str, ids))


def agreement(config, params, tokens):
    """The largest difference that precision makes to the logits, and that a cache makes."""
    whole = decoder.forward(config, params, tokens)
    wide = decoder.forward(config, ng.tree.map(lambda p: p.astype(np.float64), params), tokens)
    cache = decoder.Cache(config, capacity=tokens.shape[1], dtype=whole.dtype)
    steps = [decoder.forward(config, params, tokens[:, i : i + 1], cache=cache) for i in range(tokens.shape[1])]
    scale = np.abs(wide).max()
    return np.abs(whole - wide).max() / scale, np.abs(np.concatenate(steps, axis=1) - whole).max() / scale


def check_sampled_coordinates(config, params, tokens, each, rng):
    """Check the loss's gradient at `each` random coordinates of every parameter, in float64."""
    params = ng.tree.map(lambda p: p.astype(np.float64), params)
    chosen = {path: rng.choice(p.size, min(each, p.size), replace=False) for path, p in ng.tree.items(params)}

    def replaced(path, p, samples):
        order = np.argsort(np.concatenate([np.delete(np.arange(p.size), chosen[path]), chosen[path]]))
        return np.concatenate([np.delete(p.reshape(-1), chosen[path]), samples])[order].reshape(p.shape)

    def loss(samples):
        moved = ng.tree.map_with_path(replaced, params, samples)
        return decoder.loss(config, moved, tokens[:, :-1], tokens[:, 1:])

    return ng.check_grads(loss, ng.tree.map_with_path(lambda path, p: p.reshape(-1)[chosen[path]], params))


def fine_tune(config, params, tokens, steps, learning_rate):
    """A few steps of AdamW on one sequence; the parameters and the loss before and after."""
    adam, losses = optim.AdamW(params, learning_rate), []
    for step in range(steps + 1):
        value, gradient = ng.value_and_grad(decoder.loss, 1)(config, params, tokens[:, :-1], tokens[:, 1:])
        losses.append(float(value))
        if step < steps:
            params = adam.update(optim.clip_by_global_norm(gradient, 1.0)[0])
    return params, losses[0], losses[-1]


def difference_there(folder, logits, tokens):
    """The largest difference from the logits that transformers computes from a folder, relative to the largest."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        there = model(torch.tensor(tokens)).logits.float().numpy()
    return np.abs(there - logits).max() / np.abs(logits).max()


def run(options, folder):
    config, params = decoder.load(folder)
    encode, decode = encoder(config, folder)
    count = sum(p.size for p in ng.tree.leaves(params))
    print(
        f"{config.model_type}: {count:,} parameters, {config.num_hidden_layers} layers, vocabulary {config.vocab_size}"
    )
    limit = min(config.max_position_embeddings, options.context) - 1
    tokens = np.array([encode(options.text.read_text() if options.text else TEXT)[:limit]])
    if tokens.size < 2:
        raise ValueError("the text must have at least two tokens")
    rounding, cached = agreement(config, params, tokens)
    print(f"logits: float32 differs from float64 by {rounding:.1e} of the largest, a cache from none by {cached:.1e}")

    report = check_sampled_coordinates(config, params, tokens[:, :6], options.coordinates, np.random.default_rng(0))
    if report.interrupted:
        raise KeyboardInterrupt
    print(
        f"gradient: {report.coordinates} sampled coordinates {report.verdict}, largest error {report.worst.error:.1e}"
    )

    params, before, after = fine_tune(config, params, tokens, options.steps, options.learning_rate)
    print(f"fine-tuned {options.steps} steps on {tokens.size} tokens: loss {before:.4f} -> {after:.4f}")
    prompt = tokens[0, : max(1, tokens.size // 8)].tolist()
    room = config.max_position_embeddings - len(prompt)
    stream = decoder.generate(config, params, prompt, max_new_tokens=min(options.new_tokens, room))
    print(f"{decode(prompt)!r} continues")
    for piece in itertools.chain(pieces(prompt, stream, decode), "\n"):
        print(piece, end="", flush=True)

    decoder.save(options.out, config, params)
    if (Path(folder) / "tokenizer.json").exists() and Path(folder).resolve() != options.out.resolve():
        shutil.copy(Path(folder) / "tokenizer.json", options.out)
    logits = decoder.forward(*decoder.load(options.out), tokens)
    exported = np.array_equal(logits, decoder.forward(config, params, tokens))
    print(f"exported to {options.out}, and read again: {'the same logits' if exported else 'OTHER LOGITS'}")
    good = exported and max(rounding, cached) < 1e-4
    if all(map(importlib.util.find_spec, ("torch", "transformers"))):
        difference = difference_there(options.out, logits, tokens)
        print(f"opened in transformers: logits differ by {difference:.1e} of the largest")
        good = good and difference < 1e-5
    else:
        print("transformers is not installed, so the export is not opened there")
    return 0 if good else 1


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="a checkpoint; a small random one is made by default")
    parser.add_argument("--out", type=Path, default=Path("out/llama"), help="where the export goes")
    parser.add_argument("--text", type=Path, help="a file to fine-tune on")
    parser.add_argument("--steps", type=int, default=40, help="of fine-tuning (40)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="of fine-tuning (0.003)")
    parser.add_argument("--context", type=int, default=128, help="so many tokens of the text are used")
    parser.add_argument("--coordinates", type=int, default=3, help="checked of each parameter")
    parser.add_argument("--new-tokens", type=int, default=80, help="how many to generate (80)")
    options = parser.parse_args(argv)
    try:
        if options.folder is not None:
            return run(options, options.folder)
        with tempfile.TemporaryDirectory() as folder:
            make_checkpoint(folder)
            return run(options, folder)
    except KeyboardInterrupt:
        print("\nInterrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError, IndexError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # generated text may have characters that a terminal has not
    sys.exit(main())
