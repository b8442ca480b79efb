"""Train a tiny model for many steps and compare the peaks of memory of the second and the last quarter.

    python tests/stress/flat_memory.py --steps 20000

Python's garbage collector is off meanwhile: what only it could free would show.
"""

import argparse
import gc
import sys
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import npgrad as ng
from npgrad import optim


def loss(params, x, y):
    return np.mean((np.tanh(x @ params["in"] + params["bias"]) @ params["out"] - y) ** 2)


def peaks(steps):
    """The peak of traced memory in each quarter of a training run, in bytes."""
    rng = np.random.default_rng(0)
    params = {"in": rng.normal(size=(4, 16)), "bias": np.zeros(16), "out": rng.normal(size=(16, 1)) / 4}
    optimizer = optim.AdamW(params, 1e-3)
    step_loss, found = ng.value_and_grad(loss), []
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(4):
            tracemalloc.reset_peak()
            for _ in range(steps // 4):
                x = rng.normal(size=(8, 4))
                _, gradients = step_loss(optimizer.params, x, np.sin(x[:, :1]))
                gradients, _ = optim.clip_by_global_norm(gradients, 1.0)
                optimizer.update(gradients)
            found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
        gc.enable()
    return found


def main():
    parser = argparse.ArgumentParser(description="Peaks of memory over a long run; see the top of the file.")
    parser.add_argument("--steps", type=int, default=20_000)
    found = peaks(parser.parse_args().steps)
    print("peaks by quarter:", ", ".join(f"{peak:,}" for peak in found))
    growth = found[3] / found[1] - 1
    print(f"last quarter against the second: {growth:+.2%}")
    return 0 if growth <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
