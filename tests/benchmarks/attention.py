"""Causal attention forward and backward by length, 4 heads of width 64; the floor is the full matrix by hand."""

import math

import numpy as np
from timing import agree, compare, installed

import npgrad as ng


def full_matrix(q, k, v, g):
    """The textbook's forward and backward, with every weight in memory."""
    scale, hidden = np.float32(1 / math.sqrt(q.shape[-1])), np.triu(np.ones((q.shape[-2],) * 2, bool), 1)
    scores = q @ k.mT * scale
    scores[..., hidden] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out, dp = p @ v, g @ v.mT
    d = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    return out, d @ k, d.mT @ q, p.mT @ g


def with_npgrad(q, k, v, g):
    out, pullback = ng.vjp(ng.attention, q, k, v)
    return out, *pullback(g)


def with_pytorch(threads, arrays):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    *leaves, g = map(torch.tensor, arrays)
    for leaf in leaves:
        leaf.requires_grad_()

    def explicit(q, k, v):
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + torch.full((q.shape[-2],) * 2, -math.inf).triu(1)
        return torch.softmax(scores, -1) @ v

    def fused(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both(f):
        def run():
            out = f(*leaves)
            return out.detach().numpy(), *torch.autograd.grad(out, leaves, g)

        return run

    return {"PyTorch, explicit": both(explicit), "PyTorch, scaled_dot_product_attention": both(fused)}


def main(threads):
    for tokens in (128, 512, 1024, 4096):
        arrays = np.random.default_rng(0).normal(size=(4, 1, 4, tokens, 64)).astype(np.float32)
        systems = {
            "plain NumPy, full matrix": lambda arrays=arrays: full_matrix(*arrays),
            "npgrad": lambda arrays=arrays: with_npgrad(*arrays),
        }
        if installed("torch"):
            systems |= with_pytorch(threads, arrays)
        names = ("out", "dq", "dk", "dv")
        expected = {n: a.astype(float) for n, a in zip(names, full_matrix(*arrays.astype(float)))}
        for name, run in systems.items():
            agree(dict(zip(names, map(np.asarray, run()))), expected, 1e-4, name)
        compare(f"causal attention and its VJP, {tokens} tokens", systems, seconds=3.0, least=3)
