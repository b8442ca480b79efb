"""Train a small decoder on real text, after checking every coordinate of its gradient.

    python demos/train_decoder.py                  half a minute: check, train, compare, sample, write out/
    python demos/train_decoder.py --text book.txt  the same on your own files
    python demos/train_decoder.py --resume         go on with a run that was stopped, bit for bit as if it hadn't been
    mpiexec -n 2 python demos/train_decoder.py --mpi      the same by two processes (pip install 'npgrad[mpi]')

The whole state is saved every --save-every steps, and on Ctrl-C. At the default size its products are too small for
several threads: with OPENBLAS_NUM_THREADS=1 in the environment it is quicker, above all on a busy machine, and with
--mpi always. The same seed and number of threads give the same losses, bit for bit.

A batch is computed in two halves, by two threads or, with --mpi, by two processes, and the losses are the same, bit for
bit. There can be more processes, and --parts 1 saves a lone one a fifth of its time. Their losses agree with those of
halves to 1e-6 only for as long as float32 keeps two orders of summation together: the first 50 to 200 steps.

The text is Python's own standard library, which every machine that runs this has; a token is a byte. The decoder is
`npgrad.decoder`, of the shape of today's language models: root-mean-square norms, attention with rotary positions and
grouped key/value heads, SwiGLU; decoder_from_scratch.py shows how one writes one's own. The last tenth of the text is
held out, and on it the decoder has to beat what counting pairs of bytes achieves: the exit code is 1 if it doesn't. The
folder that it writes opens in transformers too, and `python -m npgrad generate out "def "` continues a text with it.
"""

import argparse
import os
import shutil
import sys
import sysconfig
import time
import traceback
import zlib
from pathlib import Path

import numpy as np

import npgrad as ng
from npgrad import decoder, optim, parallel, training

try:
    from matplotlib.figure import Figure
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f"This demo needs {error.name}: pip install 'npgrad[demos]'")

BYTES = 256


class Alone:
    """MPI's communicator, for a process that has no others to talk to."""

    rank, size = 0, 1

    def bcast(self, x):
        return x


def communicator():
    """The communicator of all processes that mpiexec started, from mpi4py."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where mpi4py finds no MPI
        sys.exit(f"--mpi needs mpi4py and an MPI ({str(error).splitlines()[0]}): pip install 'npgrad[mpi]'")
    comm = MPI.COMM_WORLD
    started = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or comm.size)
    if started != comm.size:
        name = MPI.get_vendor()[0]
        sys.exit(f"mpiexec started {started} processes, but mpi4py's {name} sees {comm.size}: use {name}'s mpiexec")
    return comm


def loss(config, params, windows):
    """Mean cross-entropy in nats of predicting each token of the windows (batch, context + 1) from those before it."""
    return decoder.loss(config, params, windows[:, :-1], windows[:, 1:])


def check_gradient(seed):
    """Compare every coordinate of a small decoder's gradient, in float64, with central differences; print the table."""
    config = decoder.Config(
        vocab_size=32,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    windows = np.random.default_rng(seed).integers(0, config.vocab_size, (2, 7))

    def small_decoder(params):
        return loss(config, params, windows)

    report = ng.check_grads(small_decoder, decoder.init(config, seed, np.float64))  # raises if a single one is wrong
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


def optimizer_for(params, options):
    return optim.AdamW(
        params,
        optim.cosine_schedule(
            options.learning_rate, options.steps, warmup=options.steps // 10, final=options.learning_rate / 10
        ),
        betas=(0.9, 0.95),
        weight_decay=lambda path, p: 0.1 * (p.ndim > 1),  # norms don't decay
    )


def shared_loss(config, options, comm):
    """A function (params, windows, asked) -> (loss, gradients, whether any process asked): of all the windows.

    Each process computes its parts of them. One message then brings the sums to all, the wish to stop among them: they
    have to stop at the same step.
    """
    parts = max(options.parts, comm.size)
    first, last = (parts * (comm.rank + i) // comm.size for i in (0, 1))
    start, end = options.batch * first // parts, options.batch * last // parts
    share = (end - start) / options.batch
    step_loss = parallel.value_and_grad(
        lambda params, windows: loss(config, params, windows), parts=last - first, threads=last - first
    )

    def step(params, windows, asked):
        mine = ng.tree.map(lambda x: x * share, step_loss(params, windows[start:end]))
        (value, gradients), asked = parallel.all_reduce(comm, (mine, asked))
        return value, gradients, asked

    return step


def train(config, optimizer, text, options, rng, losses, save, comm):
    """Random windows of the text until there are options.steps losses; False if Ctrl-C stopped it, after saving."""
    step_loss = shared_loss(config, options, comm)
    context, tokens = config.max_position_embeddings, options.batch * config.max_position_embeddings
    bar = {"unit": " tokens", "unit_scale": True, "mininterval": 0.5, "initial": len(losses) * tokens}
    bar["disable"] = comm.rank > 0
    with training.stop_on_interrupt() as stopped, tqdm(total=options.steps * tokens, **bar) as progress:
        while len(losses) < options.steps:
            starts = rng.integers(0, len(text) - context, options.batch)
            value, gradients, stop = step_loss(optimizer.params, windows_at(text, starts, context), stopped())
            gradients, _ = optim.clip_by_global_norm(gradients, 1.0)
            optimizer.update(gradients)
            losses.append(float(value))
            progress.set_postfix(loss=f"{value:.3f}", refresh=False)
            progress.update(tokens)
            due = len(losses) % options.save_every == 0 or len(losses) == options.steps
            stop = stop or (comm.size == 1 and stopped())  # one process needn't wait for the next message
            if (due or stop) and save(optimizer, rng, losses) and stop:
                return False
    return True


def saver(folder, settings):
    """A function that saves the state, or says why it couldn't and returns False: training goes on."""
    said = set()

    def save(optimizer, rng, losses):
        try:
            training.save(folder, optimizer, rng, step=len(losses), extra={"losses": losses, "settings": settings})
        except OSError as error:
            if error.strerror not in said:
                print(f"\n{error}. Training goes on; nothing is lost, and saving will be tried again", file=sys.stderr)
            said.add(error.strerror)
            return False
        said.clear()
        return True

    return save


def earlier_losses(folder, optimizer, rng, settings, resume):
    """Put optimiser and rng where the run in the folder stopped and return its losses; [] for a run from the start."""
    if not resume:
        if training.states(folder):
            raise ValueError(f"{folder} holds a run that isn't finished: --resume, another --out, or remove it")
        return []
    extra = training.resume(folder, optimizer, rng).extra
    differing = [name for name, value in settings.items() if extra["settings"].get(name) != value]
    if differing:
        described = ", ".join(f"{name} was {extra['settings'].get(name)}, not {settings[name]}" for name in differing)
        raise ValueError(f"the run in {folder} can't be gone on with: its {described}")
    return extra["losses"]


def count_models(text, windows):
    """Held-out loss in nats per byte of the unigram and bigram frequencies of the text, smoothed."""
    before, after = windows[:, :-1], windows[:, 1:]
    counts = np.bincount(text, minlength=BYTES)
    unigram = (counts + 1) / (len(text) + BYTES)
    pairs = np.bincount(text[:-1] * BYTES + text[1:], minlength=BYTES**2).reshape(BYTES, BYTES)
    prior = 16  # as if the unigram had been seen that often after each byte
    bigram = (pairs + prior * unigram) / (pairs.sum(1, keepdims=True) + prior)
    return -np.log(unigram[after]).mean(), -np.log(bigram[before, after]).mean()


def sample(config, params, prompt, seed):
    """The prompt continued as far as the context reaches, each byte drawn from the decoder's distribution."""
    count = config.max_position_embeddings - len(prompt)
    new = decoder.generate(config, params, list(prompt), max_new_tokens=count, temperature=0.8, seed=seed)
    return bytes([*prompt, *new]).decode(errors="replace")


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
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="where all goes (out)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters and batches (0)")
    parser.add_argument("--learning-rate", type=float, default=6e-3, metavar="X", help="the highest one (0.006)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--mpi", action="store_true", help="share each batch with the other processes of mpiexec")
    sizes = {
        "save-every": (100, "steps from one saved state to the next"),
        "steps": (1400, "of the whole run"),
        "batch": (8, "pieces of text in a step"),
        "parts": (2, "of a batch, on two threads"),
        "context": (64, "bytes of a piece of text"),
        "width": (64, "features of the residual stream"),
        "layers": (3, "blocks of the decoder"),
        "heads": (4, "of queries in a block"),
        "kv-heads": (2, "of keys and values"),
    }
    for name, (default, text) in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} ({default})")
    options = parser.parse_args(argv)
    if min(getattr(options, name.replace("-", "_")) for name in sizes) < 1:
        parser.error(f"--{', --'.join(sizes)} must be at least 1")
    if options.width % (2 * options.heads) or options.heads % options.kv_heads:
        parser.error("--width must be a multiple of twice --heads, and --heads of --kv-heads")
    return options


def begin(config, optimizer, rng, options, processes):
    """Check the gradient, read the text and go on from where a stopped run was, if any is to be resumed."""
    text, held_out = read_text(options.text, options.context)
    if processes > options.batch:
        raise ValueError(f"{processes} processes can't share --batch {options.batch}: each needs a row of it")
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {**vars(options), "text": zlib.crc32(text), "parts": max(options.parts, processes)}
    settings = {name: settings[name] for name in settings if name not in ("out", "resume", "save_every", "mpi")}
    losses = earlier_losses(options.out / "states", optimizer, rng, settings, options.resume)

    check_gradient(options.seed)
    count = sum(p.size for p in ng.tree.leaves(optimizer.params))
    print(f"\nTraining {count:,} parameters on {len(text):,} bytes, {len(held_out):,} held out", flush=True)
    return text, held_out, settings, losses


def finish(config, params, text, held_out, losses, options):
    """Compare with counting on the held-out text, write weights and picture, print samples; 1 if counting won."""
    starts = np.linspace(0, len(held_out) - options.context - 1, 1 + 2**14 // options.context).astype(int)
    windows = windows_at(held_out, starts, options.context)
    unigram, bigram = count_models(text, windows)
    results = {"unigram": unigram, "bigram": bigram, "decoder": float(loss(config, params, windows))}
    print("\nHeld-out loss in nats per byte")
    for name, value in results.items():
        print(f"  {name:8} {value:.4f}")

    decoder.save(options.out, config, params)
    draw(options.out / "loss.png", losses, results)
    shutil.rmtree(options.out / "states")
    print(f"\nWrote the weights and loss.png to {options.out}\n\nSamples")
    for i, prompt in enumerate((b"def ", b"class ", b"import ")):
        print(f"--\n{sample(config, params, prompt, options.seed + i)}")
    if results["decoder"] >= bigram:
        print("\nThe decoder did not beat the bigram counts: train it for more --steps")
        return 1
    return 0


def run(options, comm):
    """The whole job. The first process reads, writes and prints; the others get its text and state, and train along."""
    config = decoder.Config(
        vocab_size=BYTES,
        hidden_size=options.width,
        intermediate_size=8 * options.width // 3,  # three such matrices hold what two of four times the width would
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        max_position_embeddings=options.context,
    )
    rng = np.random.default_rng(options.seed)
    optimizer = optimizer_for(decoder.init(config, options.seed), options)
    first, begun, refusal = comm.rank == 0, None, None
    try:
        if first:
            begun = begin(config, optimizer, rng, options, comm.size), optimizer.state(), rng.bit_generator.state
    except (OSError, ValueError) as error:
        refusal = f"error: {error}"
    begun, refusal = comm.bcast((begun, refusal))
    if refusal:
        if first:
            print(refusal, file=sys.stderr)
        return 2  # all of them, in peace
    (text, held_out, settings, losses), state, rng.bit_generator.state = begun
    optimizer.restore(state)

    states = options.out / "states"
    write = saver(states, settings)

    def save(*state):
        return comm.bcast(first and write(*state))  # all stop, or none

    finished = train(config, optimizer, text, options, rng, losses, save, comm)
    if first and finished:
        return finish(config, optimizer.params, text, held_out, losses, options)
    if first:
        print(f"\nInterrupted: {len(losses)} steps are saved in {states}, --resume goes on with them", file=sys.stderr)
    return 0 if finished else 130


def main(argv=None):
    options = parse(argv)
    comm = communicator() if options.mpi else Alone()
    parallel.keep_memory()  # a third of a step's time is memory asked for anew, otherwise
    try:
        return run(options, comm)
    except KeyboardInterrupt:
        code, message = 130, "\nInterrupted"
    except (OSError, ValueError) as error:
        code, message = 2, f"error: {error}"
    except Exception:
        if comm.size == 1:
            raise
        code, message = 1, traceback.format_exc()
    print(message, file=sys.stderr, flush=True)
    if comm.size > 1:
        time.sleep(1)  # for mpiexec to pass the message on: it drops what it hasn't read
        comm.Abort(code)  # the others would wait for this one for ever
    return code


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a sample may have characters that a terminal has not
    sys.exit(main())
