"""Train a small decoder on real text, after checking every coordinate of its gradient.

    python demos/train_decoder.py                  about a minute: check, train, compare, sample, write out/
    python demos/train_decoder.py --text book.txt  the same on your own files

At the default size its products are too small for several threads: with OPENBLAS_NUM_THREADS=1 in the environment it
is quicker, above all on a busy machine. The same seed and number of threads give the same losses, bit for bit.

The text is Python's own standard library, which every machine that runs this has; a token is a byte. The decoder has
the shape of today's language models: root-mean-square norms, attention with rotary positions and grouped key/value
heads, SwiGLU. It is written here in plain NumPy, `decoder` and `init` below; npgrad brings the primitives, the
gradient, its verification and the optimiser. The last tenth of the text is held out, and on it the decoder has to
beat what counting pairs of bytes achieves: the exit code is 1 if it doesn't.
"""

import argparse
import functools
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np

import npgrad as ng
from npgrad import optim

try:
    from matplotlib.figure import Figure
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f"This demo needs {error.name}: pip install 'npgrad[demos]'")

BYTES = 256


class Sizes(NamedTuple):
    """What makes a decoder large or small; `hidden` is the width of the feed-forward layer."""

    vocabulary: int
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    context: int


def init(sizes, rng, dtype):
    """Random parameters: a tree of dicts and lists with arrays at its leaves; weights are (in, out)."""
    width, head_width = sizes.width, sizes.width // sizes.heads

    def weight(rows, columns, scale=1.0):
        return rng.normal(0, scale * rows**-0.5, (rows, columns)).astype(dtype)

    def block():
        into_residual = (2 * sizes.layers) ** -0.5  # two branches per block add to the residual stream
        return {
            "attention_norm": np.ones(width, dtype),
            "wq": weight(width, sizes.heads * head_width),
            "wk": weight(width, sizes.kv_heads * head_width),
            "wv": weight(width, sizes.kv_heads * head_width),
            "wo": weight(sizes.heads * head_width, width, into_residual),
            "feed_forward_norm": np.ones(width, dtype),
            "gate": weight(width, sizes.hidden),
            "up": weight(width, sizes.hidden),
            "down": weight(sizes.hidden, width, into_residual),
        }

    return {
        "embedding": rng.normal(0, 1, (sizes.vocabulary, width)).astype(dtype),
        "blocks": [block() for _ in range(sizes.layers)],
        "norm": np.ones(width, dtype),
        "head": weight(width, sizes.vocabulary, 0.5),
    }


def decoder(sizes, params, tokens):
    """The logits of each next token: tokens (batch, tokens) of integers, logits (batch, tokens, vocabulary)."""
    x = ng.embedding(params["embedding"], tokens)
    for block in params["blocks"]:
        x = x + attend(sizes, block, ng.rms_norm(x, block["attention_norm"]))
        h = ng.rms_norm(x, block["feed_forward_norm"])
        x = x + ng.swiglu(h @ block["gate"], h @ block["up"]) @ block["down"]
    return ng.rms_norm(x, params["norm"]) @ params["head"]


def attend(sizes, block, h):
    """Causal attention: positions enter by rotating queries and keys; several query heads share a key/value head."""

    def split(x, heads):  # (batch, tokens, heads · head width) -> (batch, heads, tokens, head width)
        return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)

    rope = rotary(sizes.width // sizes.heads, sizes.context)
    q = rope.rotate(split(h @ block["wq"], sizes.heads))
    k = rope.rotate(split(h @ block["wk"], sizes.kv_heads))
    v = split(h @ block["wv"], sizes.kv_heads)
    return ng.attention(q, k, v).swapaxes(1, 2).reshape(h.shape) @ block["wo"]


@functools.cache
def rotary(head_width, context):
    return ng.RotaryEmbedding(head_width, context)


def loss(sizes, params, windows):
    """Mean cross-entropy in nats of predicting each token of the windows (batch, context + 1) from those before it."""
    return ng.cross_entropy(decoder(sizes, params, windows[:, :-1]), windows[:, 1:])


def check_gradient(seed):
    """Compare every coordinate of a small decoder's gradient, in float64, with central differences; print the table."""
    sizes, rng = Sizes(32, width=12, hidden=20, layers=2, heads=2, kv_heads=1, context=6), np.random.default_rng(seed)
    windows = rng.integers(0, sizes.vocabulary, (2, sizes.context + 1))

    def small_decoder(params):
        return loss(sizes, params, windows)

    report = ng.check_grads(small_decoder, init(sizes, rng, np.float64))  # raises if a single one is wrong
    if report.interrupted:
        raise KeyboardInterrupt
    print(f"{report}\nlargest error of {report.coordinates:,} coordinates: {report.worst.error:.1e}")


def read_text(files, context):
    """The bytes of the files, or of the standard library, as integers: those to train on, and the last tenth."""
    folder = sysconfig.get_path("stdlib")
    paths = [Path(file) for file in files] or sorted(Path(folder).glob("*.py"))
    text = np.frombuffer(b"".join(path.read_bytes() for path in paths), np.uint8).astype(np.int64)
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    if len(held_out) <= context:
        source = "the text" if files else f"the Python source in {folder}"
        raise ValueError(
            f"{source} has {len(text):,} bytes, but at least {10 * context + 1:,} are needed to hold out a window of "
            f"{context + 1}: give more with --text FILE, or a shorter --context"
        )
    return train, held_out


def windows_at(text, starts, context):
    return text[starts[:, None] + np.arange(context + 1)]


def train(sizes, params, text, steps, batch, learning_rate, rng):
    """AdamW on random windows of the text; returns the parameters and the loss at each step."""
    optimizer = optim.AdamW(
        params,
        optim.cosine_schedule(learning_rate, steps, warmup=steps // 10, final=learning_rate / 10),
        betas=(0.9, 0.95),
        weight_decay=lambda path, p: 0.1 * (p.ndim > 1),  # norms don't decay
    )
    step_loss = ng.value_and_grad(lambda params, windows: loss(sizes, params, windows))
    losses = []
    with tqdm(total=steps * batch * sizes.context, unit=" tokens", unit_scale=True, mininterval=0.5) as progress:
        for _ in range(steps):
            starts = rng.integers(0, len(text) - sizes.context, batch)
            value, gradients = step_loss(optimizer.params, windows_at(text, starts, sizes.context))
            gradients, _ = optim.clip_by_global_norm(gradients, 1.0)
            optimizer.update(gradients)
            losses.append(float(value))
            progress.set_postfix(loss=f"{value:.3f}", refresh=False)
            progress.update(batch * sizes.context)
    return optimizer.params, losses


def count_models(text, windows):
    """Held-out loss in nats per byte of the unigram and bigram frequencies of the text, smoothed."""
    before, after = windows[:, :-1], windows[:, 1:]
    counts = np.bincount(text, minlength=BYTES)
    unigram = (counts + 1) / (len(text) + BYTES)
    pairs = np.bincount(text[:-1] * BYTES + text[1:], minlength=BYTES**2).reshape(BYTES, BYTES)
    prior = 16  # as if the unigram had been seen that often after each byte
    bigram = (pairs + prior * unigram) / (pairs.sum(1, keepdims=True) + prior)
    return -np.log(unigram[after]).mean(), -np.log(bigram[before, after]).mean()


def sample(sizes, params, prompt, length, rng, temperature=0.8):
    """The prompt continued by `length` bytes, each drawn from the decoder's distribution after the last ones."""
    tokens = list(prompt)
    for _ in range(length):
        logits = decoder(sizes, params, np.array([tokens[-sizes.context :]]))[0, -1].astype(float)
        tokens.append(int(rng.choice(BYTES, p=ng.softmax(logits / temperature))))
    return bytes(tokens).decode(errors="replace")


def draw(path, losses, held_out):
    """The loss curve, with what the three models reach on the held-out text as lines."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    span = 1 + len(losses) // 50
    means = np.convolve(losses, np.full(span, 1 / span), mode="valid")
    axes.plot(range(1, len(losses) + 1), losses, color="tab:blue", linewidth=0.6, alpha=0.35, label="training batch")
    axes.plot(range(span, len(losses) + 1), means, color="tab:blue", label=f"mean of the last {span}")
    for (name, value), style in zip(held_out.items(), (":", "--", "-")):
        label = f"{name} on held-out text: {value:.3f}"
        axes.axhline(value, color="black", linestyle=style, linewidth=1, label=label)
    axes.set(xlabel="step", ylabel="loss (nats per byte)", title="A decoder trained with npgrad")
    axes.legend()
    figure.savefig(path, dpi=150)


def parse(argv):
    parser = argparse.ArgumentParser(description="Check, train, compare and sample a small decoder.")
    parser.add_argument("--text", nargs="+", default=[], metavar="FILE", help="your own text")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=6e-3)
    sizes = {"steps": 1400, "batch": 8, "context": 64, "width": 64, "layers": 3, "heads": 4, "kv-heads": 2}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(argv)
    if min(getattr(options, name.replace("-", "_")) for name in sizes) < 1:
        parser.error(f"--{', --'.join(sizes)} must be at least 1")
    if options.width % (2 * options.heads) or options.heads % options.kv_heads:
        parser.error("--width must be a multiple of twice --heads, and --heads of --kv-heads")
    return options


def run(options):
    hidden = 8 * options.width // 3  # three matrices of this size hold what two of four times the width would
    sizes = Sizes(BYTES, options.width, hidden, options.layers, options.heads, options.kv_heads, options.context)
    rng = np.random.default_rng(options.seed)
    text, held_out = read_text(options.text, sizes.context)
    options.out.mkdir(parents=True, exist_ok=True)

    check_gradient(options.seed)
    params = init(sizes, rng, np.float32)
    count = sum(p.size for p in ng.tree.leaves(params))
    print(f"\nTraining {count:,} parameters on {len(text):,} bytes, {len(held_out):,} held out")
    params, losses = train(sizes, params, text, options.steps, options.batch, options.learning_rate, rng)

    starts = np.linspace(0, len(held_out) - sizes.context - 1, 1 + 2**14 // sizes.context).astype(int)
    windows = windows_at(held_out, starts, sizes.context)
    unigram, bigram = count_models(text, windows)
    results = {"unigram": unigram, "bigram": bigram, "decoder": float(loss(sizes, params, windows))}
    print("\nHeld-out loss in nats per byte")
    for name, value in results.items():
        print(f"  {name:8} {value:.4f}")

    weights, curve = options.out / "decoder.npz", options.out / "loss.png"
    np.savez(weights, **dict(ng.tree.items(params, "params")))
    draw(curve, losses, results)
    print(f"\nWrote {weights} and {curve}\n\nA sample\n{sample(sizes, params, b'def ', 300, rng)}")
    if results["decoder"] >= bigram:
        print("\nThe decoder did not beat the bigram counts: train it for more --steps")
        return 1
    return 0


def main(argv=None):
    options = parse(argv)
    try:
        return run(options)
    except KeyboardInterrupt:
        print("\nInterrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a sample may have characters that a terminal has not
    sys.exit(main())
