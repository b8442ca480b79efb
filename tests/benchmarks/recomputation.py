"""Memory against time of a decoder's gradient whose blocks run again in the backward: `recompute=True`.

    python tests/benchmarks/recomputation.py

For 4, 8 and 16 blocks of a decoder (batch 8, 256 tokens, width 128, float32): the peak of the memory that a gradient
takes beside the parameters, and the median of its time over alternating rounds. The gradients are compared first.
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

    def gradient_of(**options):
        gradient = ng.grad(lambda p: decoder.loss(settings, p, tokens, targets, **options))
        return lambda: dict(ng.tree.items(gradient(params)))

    plain, recomputing = gradient_of(), gradient_of(recompute=True)
    agree(recomputing(), {path: g.astype(float) for path, g in plain().items()}, 1e-6, "recomputation")
    return plain, recomputing


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
