"""One training step, forward, backward and AdamW in float32, of the same decoder in several systems.

The floor is a step derived by hand, without a tape. "plain NumPy calls" is the textbook's decoder, written once
for every system with NumPy's names: npgrad, autograd, MyGrad and jax.jit run the same function.
"""

import math
import shutil

import numpy as np
from handwritten_decoder import Trainer, unfuse
from problem import ADAMW, EPS, SIZES, batch, config, flat, parameters, rotary_tables
from timing import agree, compare, installed

import npgrad as ng
from npgrad import decoder, optim, parallel


def textbook_loss(xp, size):
    heads, layers = size["heads"], size["layers"]
    rows, tokens, width = size["batch"], size["tokens"], size["width"] // size["heads"]
    cosines, sines = (t[None, :, None] for t in rotary_tables(size))
    mask = np.where(np.tril(np.ones((tokens, tokens), bool)), 0, -1e30).astype(np.float32)
    scale, one, eps = np.float32(width**-0.5), np.float32(1), np.float32(EPS)

    def norm(x, weight):
        return x / xp.sqrt(xp.mean(x * x, -1, keepdims=True) + eps) * weight

    def rotate(x):
        pairs = xp.reshape(x, (rows, tokens, heads, width // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
        turned = xp.stack([a * cosines - b * sines, a * sines + b * cosines], -1)
        return xp.reshape(turned, (rows, tokens, heads, width))

    def loss(p, ids, targets):
        x = p["emb"][ids]
        for i in range(layers):
            w = {name: p[f"l{i}.{name}"] for name in ("n1", "wq", "wk", "wv", "wo", "n2", "wg", "wu", "wd")}
            y = norm(x, w["n1"])
            q, k, v = (xp.reshape(xp.matmul(y, w[n]), (rows, tokens, heads, width)) for n in ("wq", "wk", "wv"))
            q, k, v = (xp.swapaxes(t, 1, 2) for t in (rotate(q), rotate(k), v))
            scores = xp.matmul(q, xp.swapaxes(k, 2, 3)) * scale + mask
            e = xp.exp(scores - xp.max(scores, -1, keepdims=True))
            a = xp.matmul(e / xp.sum(e, -1, keepdims=True), v)
            x = x + xp.matmul(xp.reshape(xp.swapaxes(a, 1, 2), (rows, tokens, heads * width)), w["wo"])
            y = norm(x, w["n2"])
            gate = xp.matmul(y, w["wg"])
            x = x + xp.matmul(gate / (one + xp.exp(-gate)) * xp.matmul(y, w["wu"]), w["wd"])
        z = xp.reshape(xp.matmul(norm(x, p["nf"]), p["head"]), (rows * tokens, -1))
        z = z - xp.max(z, -1, keepdims=True)
        return xp.mean(xp.log(xp.sum(xp.exp(z), -1)) - z[np.arange(rows * tokens), targets.reshape(-1)])

    return loss


def plain_adamw(params):
    """AdamW array by array, as the paper writes it; for systems without one."""
    (b1, b2), count = ADAMW["betas"], 0
    first, second = ({k: np.zeros_like(p) for k, p in params.items()} for _ in range(2))

    def update(gradients):
        nonlocal count
        count += 1
        for k, p in params.items():
            g = gradients[k]
            first[k] = b1 * first[k] + (1 - b1) * g
            second[k] = b2 * second[k] + (1 - b2) * g * g
            p *= 1 - ADAMW["rate"] * ADAMW["decay"]
            root = np.sqrt(second[k] / (1 - b2**count)) + ADAMW["eps"]
            p -= ADAMW["rate"] * (first[k] / (1 - b1**count)) / root

    return update


def by_hand(size, threads):
    constants = {"d": size["width"], "f": size["hidden"], "V": size["vocabulary"], "T": size["tokens"]}
    constants |= {"H": size["heads"], "L": size["layers"], "eps": EPS, "lr": ADAMW["rate"], "wd": ADAMW["decay"]}
    constants |= {"b1": ADAMW["betas"][0], "b2": ADAMW["betas"][1], "adam_eps": ADAMW["eps"]}
    trainer = Trainer(constants, flat(parameters(size)), *batch(size), threads)

    def gradients():
        loss = trainer.grads()
        return {"loss": loss, **unfuse(trainer.G, constants)}

    return trainer.step, gradients


def with_npgrad(size, threads):
    settings, (tokens, targets) = config(size), batch(size)
    adamw = optim.AdamW(
        parameters(size), ADAMW["rate"], betas=ADAMW["betas"], eps=ADAMW["eps"], weight_decay=ADAMW["decay"]
    )

    def loss(params, tokens, targets):
        return decoder.loss(settings, params, tokens, targets)

    if threads == 1 or tokens.size < 1000:  # a step of a few milliseconds is best off whole
        f = ng.value_and_grad(loss)
    else:
        f = parallel.value_and_grad(loss, parts=threads, threads=threads)

    def step():
        _, gradients = f(adamw.params, tokens, targets)
        adamw.update(gradients)

    def gradients():
        loss, found = f(adamw.params, tokens, targets)
        return {"loss": loss, **flat(found)}

    return step, gradients


def with_value_and_grad(xp, value_and_grad):
    def make(size, threads):
        params, (tokens, targets) = flat(parameters(size)), batch(size)
        loss = textbook_loss(xp, size)
        f, update = value_and_grad(lambda p: loss(p, tokens, targets)), plain_adamw(params)
        return (lambda: update(f(params)[1])), (lambda: (lambda found: {"loss": found[0], **found[1]})(f(params)))

    return make


def with_autograd(size, threads):
    import autograd
    import autograd.numpy

    return with_value_and_grad(autograd.numpy, autograd.value_and_grad)(size, threads)


def with_mygrad(size, threads):
    import mygrad

    def value_and_grad(loss):
        def both(params):
            tensors = {k: mygrad.tensor(p) for k, p in params.items()}
            value = loss(tensors)
            value.backward()
            return value.item(), {k: t.grad for k, t in tensors.items()}

        return both

    return with_value_and_grad(mygrad, value_and_grad)(size, threads)


def with_jax(size, threads):
    import jax

    (b1, b2), (tokens, targets) = ADAMW["betas"], batch(size)
    loss, each = textbook_loss(jax.numpy, size), jax.tree_util.tree_map
    value_and_grad = jax.value_and_grad(lambda p: loss(p, tokens, targets))

    def update(p, first, second, count):
        value, g = value_and_grad(p)
        first = each(lambda m, g: b1 * m + (1 - b1) * g, first, g)
        second = each(lambda v, g: b2 * v + (1 - b2) * g * g, second, g)

        def move(p, m, v):
            root = jax.numpy.sqrt(v / (1 - b2**count)) + ADAMW["eps"]
            return p * (1 - ADAMW["rate"] * ADAMW["decay"]) - ADAMW["rate"] * (m / (1 - b1**count)) / root

        return each(move, p, first, second), first, second, value

    update = jax.jit(update, donate_argnums=(0, 1, 2))
    params = {k: jax.numpy.array(p) for k, p in flat(parameters(size)).items()}
    state, count = [each(jax.numpy.copy, params), *(each(jax.numpy.zeros_like, params) for _ in range(2))], 0

    def step():
        nonlocal count
        count += 1
        *state[:], value = update(*state, np.float32(count))
        return float(value)

    def gradients():
        value, g = jax.jit(value_and_grad)(params)
        return {"loss": value, **g}

    return step, gradients


def with_pytorch(best=False, compiled=False):
    """Explicit attention and norms; or `best`: its fused attention, norm and AdamW, and stacked projections."""

    def make(size, threads):
        import torch
        import torch.nn.functional as F

        torch.set_num_threads(threads)
        params = {k: torch.tensor(p, requires_grad=True) for k, p in flat(parameters(size)).items()}
        ids, targets = map(torch.tensor, batch(size))
        heads, tokens, layers = size["heads"], size["tokens"], size["layers"]
        turn = torch.complex(*map(torch.tensor, rotary_tables(size)))[None, :, None]
        mask = torch.full((tokens, tokens), -math.inf).triu(1)

        def norm(x, weight):
            if best:
                return F.rms_norm(x, x.shape[-1:], weight, EPS)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight

        def rotate(x):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turn).flatten(-2).transpose(1, 2)

        def products(y, *weights):
            if best:
                return (y @ torch.cat(weights, 1)).split(weights[0].shape[1], -1)
            return [y @ w for w in weights]

        def loss():
            x = F.embedding(ids, params["emb"])
            for i in range(layers):
                w = {name: params[f"l{i}.{name}"] for name in ("n1", "wq", "wk", "wv", "wo", "n2", "wg", "wu", "wd")}
                found = products(norm(x, w["n1"]), w["wq"], w["wk"], w["wv"])
                q, k, v = (t.unflatten(-1, (heads, -1)) for t in found)
                q, k, v = rotate(q), rotate(k), v.transpose(1, 2)
                if best:
                    a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                else:
                    a = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask, -1) @ v
                x = x + a.transpose(1, 2).flatten(2) @ w["wo"]
                gate, up = products(norm(x, w["n2"]), w["wg"], w["wu"])
                x = x + (F.silu(gate) * up) @ w["wd"]
            return F.cross_entropy((norm(x, params["nf"]) @ params["head"]).flatten(0, 1), targets.flatten())

        loss = torch.compile(loss) if compiled else loss
        adamw = torch.optim.AdamW(
            params.values(), ADAMW["rate"], ADAMW["betas"], ADAMW["eps"], ADAMW["decay"], fused=best or None
        )

        def gradients():
            adamw.zero_grad()
            value = loss()
            value.backward()
            return {"loss": value.detach(), **{k: p.grad.numpy() for k, p in params.items()}}

        def step():
            adamw.zero_grad()
            loss().backward()
            adamw.step()

        return step, gradients

    return make


def main(threads, names=tuple(SIZES)):
    systems = {
        "by hand": (by_hand, ()),
        "npgrad": (with_npgrad, ()),
        "npgrad, plain NumPy calls": (with_value_and_grad(np, ng.value_and_grad), ()),
        "PyTorch eager": (with_pytorch(), ("torch",)),
        "PyTorch eager, fused attention, norm and AdamW": (with_pytorch(best=True), ("torch",)),
        "PyTorch, torch.compile of the same": (with_pytorch(best=True, compiled=True), ("torch",)),
        "jax.jit (all cores)": (with_jax, ("jax",)),
        "autograd": (with_autograd, ("autograd",)),
        "MyGrad": (with_mygrad, ("mygrad",)),
    }
    for name in names:
        size = SIZES[name]
        made = {key: make(size, threads) for key, (make, needs) in systems.items() if installed(*needs)}
        if not shutil.which("c++"):
            made.pop("PyTorch, torch.compile of the same", None)
        expected = {k: np.asarray(v, float) for k, v in made["by hand"][1]().items()}
        for key, (_, gradients) in made.items():
            agree(gradients(), expected, 1e-4, key)
        title = f"decoder step, {name}: batch {size['batch']}, {size['tokens']} tokens, width {size['width']}"
        compare(title, {key: step for key, (step, _) in made.items()})
