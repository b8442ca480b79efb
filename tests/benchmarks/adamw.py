"""AdamW's update of the decoders' parameters; the floor is the paper's formula array by array in plain NumPy."""

import numpy as np
from decoder_step import plain_adamw
from problem import ADAMW, SIZES, flat, parameters
from timing import agree, compare, installed

from npgrad import optim


def main(threads):
    for name, size in SIZES.items():
        start = flat(parameters(size))
        rng = np.random.default_rng(3)
        gradients = {k: rng.normal(size=p.shape).astype(np.float32) for k, p in start.items()}
        plain = {k: p.copy() for k, p in start.items()}
        update = plain_adamw(plain)
        ours = optim.AdamW(start, ADAMW["rate"], betas=ADAMW["betas"], eps=ADAMW["eps"], weight_decay=ADAMW["decay"])
        systems = {
            "plain NumPy, array by array": lambda update=update, g=gradients: update(g),
            "npgrad": lambda ours=ours, g=gradients: ours.update(g),
        }
        tensors = None
        if installed("torch"):
            tensors, systems["PyTorch, fused"] = with_pytorch(start, gradients, threads)
        for run in systems.values():
            run()
        agree(ours.params, {k: p.astype(float) for k, p in plain.items()}, 1e-6, "npgrad")
        if tensors:
            agree({k: t.detach().numpy() for k, t in tensors.items()}, plain, 1e-6, "PyTorch")
        compare(f"AdamW, {name}: {sum(p.size for p in start.values()):,} parameters", systems, seconds=2.0)


def with_pytorch(start, gradients, threads):
    import torch

    torch.set_num_threads(threads)
    tensors = {k: torch.tensor(p, requires_grad=True) for k, p in start.items()}
    for k, t in tensors.items():
        t.grad = torch.tensor(gradients[k])
    adamw = torch.optim.AdamW(tensors.values(), ADAMW["rate"], ADAMW["betas"], ADAMW["eps"], ADAMW["decay"], fused=True)
    return tensors, adamw.step
