"""Memory against time of a gradient whose blocks are recomputed in the backward: `ng.checkpoint` around each of them.

    python tests/benchmarks/recomputation.py

For 4, 8 and 16 blocks of a decoder (batch 8, 256 tokens, width 128, float32): the peak of the memory that a gradient
takes beside the parameters, and the median of its time over alternating rounds. Both gradients are first compared with
npgrad.decoder's.
"""

import gc
import statistics
import sys
import time
import tracemalloc

from problem import batch, config, parameters
from timing import agree

import npgrad as ng
from npgrad import decoder

SIZE = {"batch": 8, "tokens": 256, "width": 128, "heads": 4, "vocabulary": 256, "hidden": 352}
ROUNDS = 7


def decoder_loss(settings, apply):
    """The loss of npgrad.decoder, each of whose blocks is `apply(block)(its parameters, x)`."""
    rope, heads = settings.rotary(SIZE["tokens"]), SIZE["heads"]

    def block(p, x):
        h = ng.rms_norm(x, p["attention_norm"], eps=settings.rms_norm_eps)
        q, k, v = (ng.linear(h, p[name]).reshape(*h.shape[:2], heads, -1).swapaxes(1, 2) for name in ("wq", "wk", "wv"))
        mixed = ng.attention(rope.rotate(q), rope.rotate(k), v).swapaxes(1, 2).reshape(h.shape)
        x = x + ng.linear(mixed, p["wo"])
        h = ng.rms_norm(x, p["feed_forward_norm"], eps=settings.rms_norm_eps)
        return x + ng.linear(ng.swiglu(ng.linear(h, p["gate"]), ng.linear(h, p["up"])), p["down"])

    applied = apply(block)

    def loss(params, tokens, targets):
        x = ng.embedding(params["embedding"], tokens)
        for p in params["blocks"]:
            x = applied(p, x)
        x = ng.rms_norm(x, params["norm"], eps=settings.rms_norm_eps)
        return ng.cross_entropy(ng.linear(x, params["head"]), targets)

    return loss


def peak_megabytes(f):
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    f()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / 1e6


def gradients(layers):
    """Two functions that give the gradient as a dict, plain and recomputing, after they were found to agree."""
    size = {**SIZE, "layers": layers}
    settings, params, (tokens, targets) = config(size), parameters(size), batch(size)

    def gradient_of(loss):
        gradient = ng.grad(loss)
        return lambda: dict(ng.tree.items(gradient(params, tokens, targets)))

    whole = gradient_of(lambda *args: decoder.loss(settings, *args))()
    expected = {path: g.astype(float) for path, g in whole.items()}
    found = [gradient_of(decoder_loss(settings, apply)) for apply in (lambda block: block, ng.checkpoint)]
    for f, name in zip(found, ("the plain gradient", "the one by recomputation")):
        agree(f(), expected, 1e-4, name)
    return found


def main():
    titles = ("blocks", "plain MB", "recomputed", "ratio", "plain ms", "recomputed", "ratio")
    print(("{:>8}" + 2 * "{:>12}{:>12}{:>8}").format(*titles))
    for layers in (4, 8, 16):
        both = gradients(layers)
        memory, times = [peak_megabytes(f) for f in both], ([], [])
        for _ in range(ROUNDS):
            for f, column in zip(both, times):
                start = time.perf_counter()
                f()
                column.append(1e3 * (time.perf_counter() - start))
        price = statistics.median(after / before for before, after in zip(*times))
        figures = (*memory, memory[1] / memory[0], *map(statistics.median, times), price)
        print(("{:8}" + 2 * "{:12.0f}{:12.0f}{:8.2f}").format(layers, *figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
