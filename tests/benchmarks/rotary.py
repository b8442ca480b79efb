"""`rotary_pairs`, forward and VJP, by length and dtype; the floor is two copies of x."""

import numpy as np
from timing import agree, compare, installed

import npgrad as ng


def main(threads):
    for dtype in (np.float32, np.float64):
        for tokens in (64, 512, 4096):
            x, g = np.random.default_rng(0).normal(size=(2, 8, 8, tokens, 64)).astype(dtype)
            rope = ng.RotaryEmbedding(64, tokens)

            def floor(x=x, g=g):
                return x.copy(), g.copy()

            def npgrad(x=x, g=g, rope=rope):
                tape = ng.Tape()
                v = tape.variable(x)
                out = ng.rotary_pairs(v, rope.cosines, rope.sines)
                return out.value, tape.gradient(out, [v], g)[0]

            cosines, sines = rope.cosines.astype(dtype), rope.sines.astype(dtype)

            def strided(x=x, g=g, cosines=cosines, sines=sines):
                def turn(x, sines, cosines=cosines):
                    out = np.empty_like(x)
                    a, b = x[..., 0::2], x[..., 1::2]
                    out[..., 0::2], out[..., 1::2] = a * cosines - b * sines, a * sines + b * cosines
                    return out

                return turn(x, sines), turn(g, -sines)

            systems = {"two copies": floor, "npgrad": npgrad, "plain NumPy, strided": strided}
            if installed("torch"):
                systems |= with_pytorch(x, g, rope, threads)
            if installed("jax") and dtype == np.float32:  # its float64 is a switch for the whole process
                systems |= with_jax(x, g, cosines, sines)
            expected = dict(zip("yx", (np.asarray(a, float) for a in strided())))
            for name in list(systems)[1:]:
                found = [np.asarray(a.detach() if hasattr(a, "detach") else a) for a in systems[name]()]
                agree(dict(zip("yx", found)), expected, 1e-5, name)
            compare(f"rotary_pairs and its VJP, (8, 8, {tokens}, 64) {np.dtype(dtype)}", systems, seconds=1.5)


def with_pytorch(x, g, rope, threads):
    import torch

    torch.set_num_threads(threads)
    x, g = torch.tensor(x, requires_grad=True), torch.tensor(g)
    cosines, sines = (torch.tensor(t).to(x.dtype) for t in (rope.cosines, rope.sines))
    turn = torch.complex(cosines, sines)

    def by_complex_numbers(x):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)

    def by_stacking(x):
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)

    def both(f):
        def run():
            y = f(x)
            return y, torch.autograd.grad(y, x, g)[0]

        return run

    return {"PyTorch, complex": both(by_complex_numbers), "PyTorch, stacked": both(by_stacking)}


def with_jax(x, g, cosines, sines):
    import jax

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return jax.numpy.stack([a * cosines - b * sines, a * sines + b * cosines], -1).reshape(x.shape)

    def by_complex_numbers(x):
        z = jax.lax.complex(x[..., 0::2], x[..., 1::2]) * jax.lax.complex(cosines, sines)
        return jax.numpy.stack([z.real, z.imag], -1).reshape(x.shape)

    def both(f):
        def differentiated(x, g):
            y, pullback = jax.vjp(f, x)
            return y, pullback(g)[0]

        compiled, arrays = jax.jit(differentiated), [jax.numpy.array(x), jax.numpy.array(g)]
        return lambda: jax.block_until_ready(compiled(*arrays))

    return {"jax.jit, stacked (all cores)": both(turn), "jax.jit, complex (all cores)": both(by_complex_numbers)}
