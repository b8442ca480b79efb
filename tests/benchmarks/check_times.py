"""What a check of every coordinate of a small decoder (2,000 of them) takes, beside a bare loop of differences.

    python tests/benchmarks/check_times.py [--rounds 5] [--extended]

Alternating rounds; medians, and medians of each round's ratio to the loop. PyTorch's gradcheck, where it is installed,
gets the same decoder in PyTorch's operations.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "check")]

import small_decoder as d  # noqa: E402

import npgrad as ng  # noqa: E402


def bare_loop(h=1e-5):
    gradient = ng.tree.map(np.zeros_like, d.PARAMS)
    for p, g in zip(ng.tree.leaves(d.PARAMS), ng.tree.leaves(gradient)):
        for i in np.ndindex(p.shape):
            kept = p[i]
            p[i] = kept + h
            above = d.loss(d.PARAMS)
            p[i] = kept - h
            g[i] = (above - d.loss(d.PARAMS)) / (2 * h)
            p[i] = kept
    return gradient


def of_torch():
    """A call of PyTorch's gradcheck on the decoder, which gives the loss that npgrad gives."""
    import torch

    tensors = [torch.from_numpy(p.copy()).requires_grad_() for p in ng.tree.leaves(d.PARAMS)]
    cosines, sines = (torch.from_numpy(t[: d.TOKENS].copy()) for t in (d.ROPE.cosines, d.ROPE.sines))
    inputs, targets = (torch.from_numpy(t.copy()) for t in (d.INPUTS, d.TARGETS))
    hidden = torch.triu(torch.ones(d.TOKENS, d.TOKENS, dtype=torch.bool), 1)

    def heads(x):
        return x.reshape(d.BATCH, d.TOKENS, d.HEADS, -1).transpose(1, 2)

    def rotate(x):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)

    def norm(x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w

    def loss(*leaves):
        params = ng.tree.unflatten(d.PARAMS, list(leaves))
        x = torch.nn.functional.embedding(inputs, params["embedding"])
        for b in params["blocks"]:
            h = norm(x, b["norm"])
            q, k, v = (heads(h @ b[name]) for name in ("wq", "wk", "wv"))
            scores = rotate(q) @ rotate(k).mT / (d.WIDTH // d.HEADS) ** 0.5
            mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
            x = x + mixed.transpose(1, 2).flatten(-2) @ b["wo"]
            h = norm(x, b["norm2"])
            x = x + (torch.nn.functional.silu(h @ b["gate"]) * (h @ b["up"])) @ b["down"]
        logits = norm(x, params["norm"]) @ params["head"]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    assert np.allclose(loss(*tensors).item(), d.loss(d.PARAMS), rtol=1e-12)
    torch.set_num_threads(1)
    return lambda: torch.autograd.gradcheck(loss, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--extended", action="store_true", help="also in long double, which takes much longer")
    options = parser.parse_args()
    runs = {
        "bare loop": bare_loop,
        "check_grads, extended=False": lambda: ng.check_grads(d.loss, d.PARAMS, extended=False),
        "the same, batched=True": lambda: ng.check_grads(d.batched_loss, d.PARAMS, extended=False, batched=True),
    }
    if options.extended:
        runs["check_grads"] = lambda: ng.check_grads(d.loss, d.PARAMS)
    try:
        runs["torch gradcheck"] = of_torch()
    except ImportError:
        print("torch is not installed")
    times = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    print(f"{d.SIZE} coordinates, {options.rounds} rounds")
    for name, seconds in times.items():
        ratio = statistics.median(s / t for s, t in zip(seconds, times["bare loop"]))
        print(f"{name:<28} {statistics.median(seconds):8.3f} s   {ratio:6.2f} of the loop")


if __name__ == "__main__":
    main()
