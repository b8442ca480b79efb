"""Random programs: 3 to 12 operations from the registry on random shapes, every coordinate against differences.

A program is a list of steps, each a function of the values so far; it runs on Variables and on long doubles alike.
`pytest tests/test_random_programs.py --programs 20000` runs more of them than the usual 500.
"""

import math

import numpy as np
import oracle
import pytest

import npgrad as ng
from npgrad.variable import REGISTRY

BATCH = 50

SMOOTH = (
    np.sin, np.cos, np.tanh, np.arctan, np.arcsinh, np.sinc, np.negative, np.square, np.abs, np.positive, np.deg2rad,
    np.i0,
    np.nan_to_num,
)  # fmt: skip
ABOVE_ONE = (np.log, np.sqrt, np.log1p, np.arccosh, np.reciprocal, np.log2, np.log10, np.cbrt)
BINARY = (
    np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.hypot, np.arctan2, np.logaddexp, np.fmax, np.fmin,
    np.copysign,
)  # fmt: skip
REDUCE = (np.sum, np.mean, np.max, np.min, np.var, np.std, np.prod, np.ptp, np.median)
RUNNING = (np.cumsum, np.cumprod, np.sort, np.flip, np.diff)
LAPACK = (np.linalg.inv, np.linalg.det, np.linalg.cholesky, np.linalg.eigvalsh, np.linalg.svdvals, np.linalg.pinv)


def smooth(random, x, pool):
    f = random.choice(SMOOTH)
    return f, lambda x, *_: f(x)


def above_one(random, x, pool):
    f = random.choice(ABOVE_ONE)
    return f, lambda x, *_: f(x * x + 1.5)


def exponential(random, x, pool):
    f = random.choice([np.exp, np.expm1, np.exp2, np.sinh, np.cosh])
    return f, lambda x, *_: f(np.clip(x, -2.5, 2.5))


def binary(random, x, pool):
    f, shape = random.choice(BINARY), x.shape
    fitting = [i for i, y in enumerate(pool) if _broadcasts(shape, y.shape)]
    i = random.choice(fitting)
    return f, lambda x, *pool: f(x, pool[i])


def division(random, x, pool):
    f = random.choice([np.divide, np.power])
    if f is np.power:
        n = int(random.integers(0, 4))
        return f, lambda x, *_: np.power(x, n)
    fitting = [i for i, y in enumerate(pool) if _broadcasts(x.shape, y.shape)]
    i = random.choice(fitting)
    return f, lambda x, *pool: x / (pool[i] * pool[i] + 1)


def reduction(random, x, pool):
    f = random.choice(REDUCE)
    axes = [None, *range(-x.ndim, x.ndim)]
    axis, keepdims = random.choice(np.array(axes, object)), bool(random.integers(2))
    if x.size == 0 or (f is np.median and x.size > 20):
        return None
    return f, lambda x, *_: f(x, axis=axis, keepdims=keepdims)


def running(random, x, pool):
    if not x.ndim:
        return None
    f, axis = random.choice(RUNNING), int(random.integers(-x.ndim, x.ndim))
    return (f, lambda x, *_: f(x, axis=axis)) if x.shape[axis] > 1 else None


def movement(random, x, pool):
    n = x.ndim
    if n and not x.size:
        return None
    if not n:
        return np.reshape, lambda x, *_: np.reshape(x, (1, 1))
    axis, other, k = (int(random.integers(*bounds)) for bounds in ((-n, n), (-n, n), (-3, 4)))
    order = random.permutation(n)
    choices = [
        (np.swapaxes, lambda x, *_: np.swapaxes(x, axis, other)),
        (np.moveaxis, lambda x, *_: np.moveaxis(x, axis, other)),
        (np.transpose, lambda x, *_: np.transpose(x, order)), (np.roll, lambda x, *_: np.roll(x, k, axis)),
        (np.ravel, lambda x, *_: np.ravel(x, "F")), (np.expand_dims, lambda x, *_: np.expand_dims(x, axis)),
        (np.tile, lambda x, *_: np.tile(x, 2)), (np.repeat, lambda x, *_: np.repeat(x, 2, axis)),
        (np.split, lambda x, *_: np.array_split(x, 2, axis)[0]), (np.pad, lambda x, *_: np.pad(x, 1, "symmetric")),
        (np.concatenate, lambda x, *_: np.concatenate([x, -x], axis)),
        (np.stack, lambda x, *_: np.stack([x, x * x], axis)),
        (np.reshape, lambda x, *_: np.reshape(x, (-1, 1))),
        (np.broadcast_to, lambda x, *_: np.broadcast_to(x, (2, *x.shape))),
    ]  # fmt: skip
    return choices[random.integers(len(choices))]


def index(random, x, pool):
    if not x.ndim or not x.shape[0]:
        return None
    rows = random.integers(-len(x), len(x), size=int(random.integers(1, 4)))
    mask = random.random(x.shape) < 0.7
    choices = [rows, rows[0], slice(None, None, -1), (..., slice(0, 2)), None, (rows, None), mask]
    i = choices[random.integers(len(choices))]
    return np.take, lambda x, *_: x[i]


def update(random, x, pool):
    if not x.ndim or not x.shape[0]:
        return None
    f, rows = random.choice([ng.set_at, ng.add_at]), random.integers(0, len(x), 3)
    return np.take, lambda x, *_: f(x, rows, np.sum(x) / 4)


def choice(random, x, pool):
    mask = random.random(x.shape) < 0.5
    return np.where, lambda x, *_: np.where(mask, x, x * x)


def product(random, x, pool):
    if not x.ndim:
        return None
    last = x.shape[-1]
    seconds = [i for i, y in enumerate(pool) if y.ndim and y.shape[-2 if y.ndim > 1 else 0] == last]
    seconds = [i for i in seconds if _broadcasts(x.shape[:-2], pool[i].shape[:-2])]
    letters = "abcdef"[: x.ndim]
    choices = [
        (np.einsum, lambda x, *_: np.einsum(f"{letters},{letters}->{letters[0]}", x, x)),
        (np.matmul, lambda x, *_: np.matmul(x, np.swapaxes(x, -1, -2) if x.ndim > 1 else x)),
        (np.linalg.norm, lambda x, *_: np.linalg.norm(x, axis=-1)), (np.outer, lambda x, *_: np.outer(x, x)[:4, :4]),
        (np.tensordot, lambda x, *_: np.tensordot(x, x, ((0,), (0,)))),
    ]  # fmt: skip
    if seconds:
        i = random.choice(seconds)
        choices += [(np.matmul, lambda x, *pool: x @ pool[i])] * 3
    return choices[random.integers(len(choices))]


def lapack(random, x, pool):
    if x.ndim < 2 or not x.size or max(x.shape[-2:]) > 4:
        return None
    f = random.choice(LAPACK)
    gaps = np.diag(np.arange(1.0, x.shape[-2] + 1))

    def run(x, *_):
        a = np.tanh(x)
        a = a @ np.swapaxes(a, -1, -2) / 4 + gaps
        return f(a.astype(float) if type(a) is np.ndarray else a)  # LAPACK has no long double

    return f, run


KINDS = (
    smooth, smooth, above_one, exponential, binary, binary, division, reduction, running, movement, movement, index,
    update, choice, product, product, lapack,
)  # fmt: skip


def _broadcasts(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


def make(seed):
    """A program's steps, the functions of NumPy that it uses, and its inputs."""
    random = np.random.default_rng([2026, seed])
    inputs = []
    for _ in range(random.integers(1, 3)):
        inputs.append(random.normal(size=tuple(random.integers(1, 4, size=random.integers(0, 4)))))
    pool, steps, used = [*inputs], [], []
    while len(steps) < 3 or (len(steps) < 12 and random.random() < 0.85):
        source = int(random.choice([len(pool) - 1, random.integers(len(pool))]))
        found = KINDS[random.integers(len(KINDS))](random, pool[source], pool)
        if found is None:
            continue
        function, step = found
        y = step(pool[source], *pool)
        if np.size(y) > 60 or not np.all(np.isfinite(y)):
            continue
        large = np.size(y) and np.max(np.abs(y)) > 20
        steps.append((source, (lambda x, *pool, step=step: np.tanh(step(x, *pool) / 20)) if large else step))
        used.append(function)
        pool.append(np.asarray(steps[-1][1](pool[source], *pool)))
    weights = [random.normal(size=y.shape) for y in pool]
    return steps, used, inputs, weights


def run(steps, weights, inputs):
    """The weighted sum of every value that the program made."""
    pool = [*inputs]
    for source, step in steps:
        pool.append(step(pool[source], *pool))
    return sum(np.sum(w * y) for w, y in zip(weights, pool))


def mismatch(seed):
    """What is wrong with the gradient of a program, or None."""
    steps, used, inputs, weights = make(seed)
    total = lambda *inputs: run(steps, weights, inputs)
    found = ng.grad(total, argnums=tuple(range(len(inputs))))(*inputs)
    for step in (1e-4, 1e-5, 1e-6):  # a smaller one where a kink is near
        wanted = oracle.differences(total, inputs, step=step)
        wrong = max(np.max(np.abs(g - w) / (1 + np.abs(w)), initial=0) for g, w in zip(found, wanted))
        if wrong < (1e-7 if step > 1e-6 else 1e-6):
            return None
    return f"program {seed}: {[f.__name__ for f in used]} on {[x.shape for x in inputs]} is off by {wrong:.1e}"


def pytest_generate_tests(metafunc):
    if "batch" in metafunc.fixturenames:
        metafunc.parametrize("batch", range(math.ceil(metafunc.config.getoption("programs") / BATCH)))


def test_gradients_of_random_programs(batch):
    assert list(filter(None, map(mismatch, range(batch * BATCH, (batch + 1) * BATCH)))) == []


def test_programs_are_of_the_registry_and_use_most_of_the_table():
    seen = set()
    for seed in range(400):
        steps, used, _, _ = make(seed)
        assert 3 <= len(steps) <= 12
        seen.update(used)
    assert all(function in REGISTRY for function in seen)
    assert len(seen) > 70


def test_a_wrong_rule_would_be_found(monkeypatch):
    monkeypatch.setattr(REGISTRY[np.sin], "rules", (lambda out, x: lambda g: g * np.cos(x) * 1.001,))
    with pytest.raises(AssertionError):
        assert list(filter(None, map(mismatch, range(60)))) == []
