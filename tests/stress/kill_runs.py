"""Kill a run that saves its state at every step, again and again, and compare it with one that is left in peace.

    python tests/stress/kill_runs.py --kills 100

A run trains a small network for `--steps` steps. It is killed (SIGKILL) at random instants and resumed each time until
it has finished, and runs follow each other until the kills are used up. Every loss has to be the uninterrupted run's,
bit for bit, and every state that a kill leaves has to be readable.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import npgrad as ng
from npgrad import optim, training


def loss(params, x, y):
    return np.mean((np.tanh(x @ params["in"]) @ params["out"] - y) ** 2)


def run(folder, steps):
    """Train, from the newest state if there is one, and print the losses of all steps."""
    rng = np.random.default_rng(7)
    params = {"in": rng.normal(size=(8, 64)) / 3, "out": rng.normal(size=(64, 1)) / 8}
    optimizer = optim.AdamW(params, optim.cosine_schedule(1e-2, steps, warmup=5))
    start, losses = 0, []
    if training.states(folder):
        start, extra = training.resume(folder, optimizer, rng)
        losses = extra["losses"]
    print("started", flush=True)
    for step in range(start, steps):
        x = rng.normal(size=(16, 8))
        value, gradients = ng.value_and_grad(loss)(optimizer.params, x, np.sin(x[:, :1]))
        optimizer.update(gradients)
        losses.append(float(value))
        training.save(folder, optimizer, rng, step=step + 1, extra={"losses": losses})
    print(json.dumps(losses), flush=True)


def launch(folder, steps):
    """Start a run in a process of its own and wait until it trains."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--run", folder, "--steps", str(steps)], stdout=subprocess.PIPE, text=True
    )
    if process.stdout.readline() != "started\n":
        sys.exit("a run did not start: a state was unreadable")
    return process


def finish(process):
    """The losses of a run that goes through to its end."""
    return json.loads(process.communicate()[0])


def main():
    parser = argparse.ArgumentParser(description="Kill and resume a run; see the top of the file.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run(options.run, options.steps)
    instants = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        expected = finish(launch(f"{folder}/whole", options.steps))
        duration = time.monotonic() - began
        kills = rounds = 0
        while kills < options.kills:
            rounds += 1
            for _ in range(10):
                process = launch(f"{folder}/{rounds}", options.steps)
                time.sleep(instants.uniform(0, duration / 8))
                if process.poll() is None and kills < options.kills:
                    process.kill()
                    kills += 1
                process.communicate()
            assert finish(launch(f"{folder}/{rounds}", options.steps)) == expected, "losses differ"
    print(f"{kills} kills, 0 unreadable states, {rounds} runs with the losses of the uninterrupted one, bit for bit")


if __name__ == "__main__":
    main()
