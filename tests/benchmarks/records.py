"""What a recorded operation costs when its arithmetic is free: chains of `x = x * a + b` on 4 numbers.

    python tests/benchmarks/records.py

Rounds alternate between the systems; each figure is the median over rounds, in microseconds per operation, beside its
ratio to raw NumPy in the same run. Every gradient is compared with NumPy's before anything is timed. PyTorch and HIPS
autograd join in where they are installed. The last line gives the memory of a chain of 100,000 records.
"""

import gc
import importlib.util
import statistics
import time
import tracemalloc

import numpy as np

import npgrad as ng

LENGTH, ROUNDS = 500, 60
A, B, X = (np.array(v) for v in ([0.999, 1.001, 0.998, 1.0], [1e-3, -1e-3, 2e-3, 0.0], [0.1, 0.2, 0.3, 0.4]))


def chain(x, a, b, length=LENGTH):
    for _ in range(length):
        x = x * a + b
    return x


def raw():
    def forward():
        return chain(X, A, B)

    def backward(_):
        g = np.ones(4)
        for _ in range(LENGTH):
            g = g * A
        return g

    return forward, backward


def npgrad():
    def forward():
        tape = ng.Tape()
        x = tape.variable(X)
        return tape, x, chain(x, A, B)

    def backward(state):
        tape, x, y = state
        return tape.gradient(y, [x], np.ones(4))[0]

    return forward, backward


def pytorch():
    import torch

    a, b, one = torch.tensor(A), torch.tensor(B), torch.ones(4, dtype=torch.float64)

    def forward():
        x = torch.tensor(X, requires_grad=True)
        return x, chain(x, a, b)

    def backward(state):
        x, y = state
        y.backward(one)
        return x.grad.numpy()

    return forward, backward


def autograd():
    from autograd import make_vjp

    def forward():
        return make_vjp(lambda x: chain(x, A, B))(X)

    def backward(state):
        return state[0](np.ones(4))

    return forward, backward


def measure(systems):
    times = {name: ([], []) for name in systems}
    for _ in range(ROUNDS):
        for name, (forward, backward) in systems.items():
            gc.collect()
            start = time.perf_counter()
            state = forward()
            middle = time.perf_counter()
            backward(state)
            end = time.perf_counter()
            del state
            times[name][0].append(middle - start)
            times[name][1].append(end - middle)
    return {name: [statistics.median(t) / (2 * LENGTH) * 1e6 for t in pair] for name, pair in times.items()}


def memory_per_record(records=100_000):
    tracemalloc.start()
    tape = ng.Tape()
    x = tape.variable(X)
    before = tracemalloc.get_traced_memory()[0]
    y = chain(x, A, B, records // 2)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(tape.records) == records + 1
    assert y.shape == (4,)
    return (after - before) / records


def main():
    installed = {"pytorch": ("torch", pytorch), "autograd": ("autograd", autograd)}
    systems = {"raw NumPy": raw(), "npgrad": npgrad()}
    systems |= {name: make() for name, (module, make) in installed.items() if importlib.util.find_spec(module)}
    for name, (forward, backward) in systems.items():
        np.testing.assert_allclose(backward(forward()), A**LENGTH, rtol=1e-12, err_msg=name)
    print(f"{'µs per operation':20}{'forward':>10}{'backward':>10}{'ratio':>8}")
    figures = measure(systems)
    floor = sum(figures["raw NumPy"])
    for name, (forward, backward) in figures.items():
        print(f"{name:20}{forward:10.2f}{backward:10.2f}{(forward + backward) / floor:8.1f}")
    print(f"a chain of 100,000 records takes {memory_per_record():.0f} bytes per record")


if __name__ == "__main__":
    main()
