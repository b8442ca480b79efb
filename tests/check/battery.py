"""A battery for gradient checkers: functions with a planted fault, and correct functions that are hard to check.

Each case is a pair `forward(*args)`, `backward(cotangent, *args)` over plain arrays: any checker can be tried on
it (tests/benchmarks/gradcheck_verdicts.py does). FAULTS must fail, HARD must pass. The faults that only
differentiating npgrad's own primitives can show are in test_battery.py.
"""

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    name: str
    forward: Any
    backward: Any
    args: tuple


FAULTS: list[Case] = []
HARD: list[Case] = []
RNG = np.random.default_rng(2024)


def normal(*shape):
    return RNG.normal(size=shape)


def fault(name, forward, backward, *args):
    FAULTS.append(Case(name, forward, backward, args))


def hard(name, forward, backward, *args):
    HARD.append(Case(name, forward, backward, args))


# The functions that the cases are made of, with their right derivatives.


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def softmax_vjp(g, x):
    p = softmax(x)
    return p * (g - np.sum(g * p, axis=-1, keepdims=True))


def log_softmax(x):
    z = x - np.max(x, axis=-1, keepdims=True)
    return z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))


def log_softmax_vjp(g, x):
    return g - softmax(x) * np.sum(g, axis=-1, keepdims=True)


def rotate(x, cosines, sines):
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * cosines - b * sines, a * sines + b * cosines], axis=-1).reshape(x.shape)


def rotate_half(x, cosines, sines):
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cosines - b * sines, a * sines + b * cosines], axis=-1)


def rms_norm(x, w):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w


def rms_norm_vjp(g, x, w):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    inner = g * w
    dx = r * inner - x * r**3 * np.mean(inner * x, axis=-1, keepdims=True)
    return dx, np.sum(g * x * r, axis=tuple(range(x.ndim - 1)))


def layer_norm(x):
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5)


def layer_norm_vjp(g, x):
    d = x - np.mean(x, axis=-1, keepdims=True)
    r = 1 / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5)
    y = d * r
    return r * (g - np.mean(g, axis=-1, keepdims=True) - y * np.mean(g * y, axis=-1, keepdims=True))


def masked(s):
    return np.where(np.tri(s.shape[-2], s.shape[-1], dtype=bool), s, -np.inf)


def masked_vjp(g, s):
    return np.where(np.tri(*s.shape[-2:], dtype=bool), g, np.zeros((), g.dtype))


def cross_entropy(z, t):
    return -np.mean(np.take_along_axis(log_softmax(z), t[:, None], axis=-1))


def cross_entropy_vjp(g, z, t):
    return g * (softmax(z) - np.eye(z.shape[-1], dtype=z.dtype)[t]) / len(t)


def embed(table, ids):
    return table[ids]


def embed_vjp(g, table, ids):
    out = np.zeros_like(table)
    np.add.at(out, ids, g)
    return out


def tanh_vjp(g, x):
    return g * (1 - np.tanh(x) ** 2)


def scaled(factor, backward):
    def wrong(g, *args):
        found = backward(g, *args)
        found = [h * np.asarray(factor, h.dtype) for h in (found if isinstance(found, tuple) else (found,))]
        return found[0] if len(found) == 1 else tuple(found)

    return wrong


ANGLES = np.arange(5)[:, None] * 100.0 ** (-np.arange(3) / 3)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
IDS = np.array([0, 2, 2, 4, 0, 2])
X, Y, W, G = normal(4, 6), normal(4, 6), normal(6), normal(5, 6)
A, B = normal(4, 5), normal(5, 3)

# Faults of scale, from gross to 1e-8.

for _size in (5e-2, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
    fault(f"tanh scaled by 1 + {_size:g}", np.tanh, scaled(1 + _size, tanh_vjp), X)
for _size in (5e-2, 1e-3, 1e-8):
    fault(f"softmax scaled by 1 - {_size:g}", softmax, scaled(1 - _size, softmax_vjp), X)
fault("matmul, second argument by 1 + 1e-8", np.matmul, lambda g, a, b: (g @ b.T, a.T @ g * (1 + 1e-8)), A, B)
fault("float32 tanh scaled by 1.001", np.tanh, scaled(1.001, tanh_vjp), X.astype(np.float32))
fault("float32 matmul scaled by 0.999", np.matmul, scaled(0.999, lambda g, a, b: (g @ b.T, a.T @ g)),
      A.astype(np.float32), B.astype(np.float32))  # fmt: skip
fault("sign", np.sin, lambda g, x: -g * np.cos(x), X)
fault("softmax twice too large", softmax, scaled(2.0, softmax_vjp), X)
fault("loss without 1/N", cross_entropy, scaled(4.0, cross_entropy_vjp), X, np.array([0, 5, 2, 2]))
fault("mean without 1/N", np.mean, lambda g, x: np.broadcast_to(g, x.shape).copy(), X)

# Faults in few coordinates.


def _one_of_many(g, x):
    d = g * np.cos(x)
    d[617] *= 1.01
    return d


def _corner(g, x):
    d = softmax_vjp(g, x)
    d[-1, -1] += 1e-6
    return d


fault("one of 1,000 coordinates", np.sin, _one_of_many, normal(1000))
fault("one corner, 1e-6", softmax, _corner, X)
fault("last row forgotten", np.tanh, lambda g, x: np.concatenate([tanh_vjp(g, x)[:-1], 0 * x[-1:]]), X)
fault("two rows exchanged", np.tanh, lambda g, x: tanh_vjp(g, x)[[1, 0, 2, 3]], X)

# The decoder's own mistakes.

fault("rotated by +angle instead of -angle", lambda x: rotate(x, COS, SIN), lambda g, x: rotate(g, COS, SIN), G)
fault("half layout in the backward only", lambda x: rotate(x, COS, SIN), lambda g, x: rotate_half(g, COS, -SIN), G)
fault("positions shifted by one in the backward", lambda x: rotate(x, COS, SIN),
      lambda g, x: rotate(g, np.roll(COS, 1, 0), -np.roll(SIN, 1, 0)), G)  # fmt: skip
fault("unscaled table in the backward", lambda x: rotate(x, 1.1 * COS, 1.1 * SIN),
      lambda g, x: rotate(g, COS, -SIN), G)  # fmt: skip
fault("mask leaks 1e-3", masked, lambda g, s: np.where(np.tri(4, dtype=bool), g, 1e-3 * g), normal(4, 4))
fault("mask off by one", masked, lambda g, s: np.where(np.tri(4, k=-1, dtype=bool), g, 0.0), normal(4, 4))
fault("softmax without its sum", softmax, lambda g, x: g * softmax(x), X)
fault("softmax over the wrong axis", softmax,
      lambda g, x: softmax(x) * (g - np.sum(g * softmax(x), 0, keepdims=True)), X)  # fmt: skip
fault("log-softmax without its sum", log_softmax, lambda g, x: g - softmax(x), X)
fault("layer norm without its mean", layer_norm,
      lambda g, x: layer_norm_vjp(g, x) + np.mean(g, -1, keepdims=True) / np.std(x, -1, keepdims=True), X)  # fmt: skip
fault(
    "RMS norm without its projection",
    rms_norm,
    lambda g, x, w: (g * w / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6), rms_norm_vjp(g, x, w)[1]),
    X,
    W,
)
fault("RMS norm, epsilon forgotten", rms_norm, lambda g, x, w: (rms_norm_vjp(g, x * (1 + 1e-7), w)[0], rms_norm_vjp(g, x, w)[1]), X, W)  # noqa: E501  # fmt: skip
fault("duplicates overwritten", embed, lambda g, table, ids: _overwritten(g, table, ids), normal(5, 3), IDS)
fault("target of the loss shifted", cross_entropy, lambda g, z, t: cross_entropy_vjp(g, z, (t + 1) % 6), X, np.array([0, 5, 2, 2]))  # noqa: E501  # fmt: skip
fault("sigmoid without 1 - s", lambda x: 1 / (1 + np.exp(-x)), lambda g, x: g / (1 + np.exp(-x)), X)
fault("transposed weight gradient", np.matmul, lambda g, a, b: (g @ b.T, (a.T @ g).T.copy()), A[:, :4], B[:4, :4 - 1].repeat(2, 1)[:, :4])  # noqa: E501  # fmt: skip
fault("second largest of each row", lambda x: np.max(x, -1),
      lambda g, x: g[:, None] * (x == np.sort(x, -1)[:, -2:-1]), X)  # fmt: skip


def _overwritten(g, table, ids):
    out = np.zeros_like(table)
    out[ids] = g
    return out


# Faults of contract.


def _mutates_cotangent(g, x):
    g *= 1 - np.tanh(x) ** 2
    return g


def _mutates_input(g, x):
    d = tanh_vjp(g, x)
    x += 1e-3
    return d


def _small_noise(g, x):
    return tanh_vjp(g, x) * (1 + 1e-6 * np.random.default_rng().normal())


class _Stale:
    """A layer that keeps its first input for ever."""

    def __init__(self):
        self.x = None

    def forward(self, x):
        self.x = np.array(x) if self.x is None else self.x
        return np.tanh(x)

    def backward(self, g, x):
        return g * (1 - np.tanh(self.x) ** 2)


_STALE = _Stale()
_BUFFER = np.zeros((4, 6))


def _shared_buffer(g, x, y):
    np.multiply(g, y, out=_BUFFER)
    return _BUFFER, _BUFFER


fault("broadcasting not summed", lambda x, w: x * w, lambda g, x, w: (g * w, g * x), X, W)
fault("broadcastable shape", lambda x, w: x * w, lambda g, x, w: (g * w, np.sum(g * x, 0, keepdims=True)), X, W)
fault("scalar gradient for an array", np.sum, lambda g, x: g, X)
fault("cotangent mutated", np.tanh, _mutates_cotangent, X)
fault("input mutated", np.tanh, _mutates_input, X)
fault("not linear: square", np.sin, lambda g, x: g * np.abs(g) * np.cos(x), X)
fault("not linear: clipped", np.sin, lambda g, x: np.clip(g, -1, 1) * np.cos(x), X)
fault("not linear: constant added", np.sin, lambda g, x: g * np.cos(x) + 1e-5, X)
fault("cotangent ignored", lambda x: np.sum(np.sin(x)), lambda g, x: np.cos(x), X)
fault("float64 gradient of float32", np.sin, lambda g, x: (g * np.cos(x)).astype(float), X.astype(np.float32))
fault("float32 gradient of float64", np.sin, lambda g, x: (g * np.cos(x)).astype(np.float32), X)
fault("computed in float32", np.sin, lambda g, x: (g * np.cos(x).astype(np.float32)).astype(float), X)
fault("nondeterministic", np.tanh, _small_noise, X)
fault("result is the cotangent", lambda x: x + 1, lambda g, x: g, X)
fault("one buffer for both gradients", np.multiply, _shared_buffer, X, X.copy())
fault("stale saved array", _STALE.forward, _STALE.backward, X)
fault("zeros", np.sin, lambda g, x: np.zeros_like(x), X)
fault("NaN", np.sin, lambda g, x: np.full_like(x, np.nan), X)

# Correct and hard.

X32, A32, B32 = (x.astype(np.float32) for x in (X, A, B))
SCALES = np.array([1e-30, 1e-20, 1e-10, 1e-3, 1.0, 1e3, 1e10, 1e20, 1e30])
GAPS = 1 + 5e-7 * np.array([3.0, 0, 4, 1, 2, 5])
HOLED = np.where(X > 0, X, np.nan)


def _order(g, x):
    d = np.empty_like(x)
    d[np.argsort(x)] = g
    return d


def _quiet_sqrt(x):
    return np.where(x > 0, np.sqrt(np.where(x > 0, x, 1)), 0)


hard("float32 softmax", softmax, softmax_vjp, X32)
hard("float32 softmax of large numbers", softmax, softmax_vjp, 30 * X32)
hard("float32 log-softmax", log_softmax, log_softmax_vjp, X32)
hard("float32 matmul", np.matmul, lambda g, a, b: (g @ b.T, a.T @ g), A32, B32)
hard("float32 long matmul", np.matmul, lambda g, a, b: (g @ b.T, a.T @ g), normal(2, 300).astype(np.float32), normal(300, 2).astype(np.float32))  # noqa: E501  # fmt: skip
hard("float32 tanh", np.tanh, tanh_vjp, 3 * X32)
hard("float32 layer norm", layer_norm, layer_norm_vjp, X32)
hard("float32 RMS norm", rms_norm, rms_norm_vjp, X32, W.astype(np.float32))
hard("float32 cross-entropy", cross_entropy, cross_entropy_vjp, X32, np.array([0, 5, 2, 2]))
hard("float32 sum of 3,000", lambda x: np.sum(x * x), lambda g, x: 2 * g * x, normal(3000).astype(np.float32))
hard("float16 product", lambda x: x * x, lambda g, x: 2 * g * x, X.astype(np.float16))
hard("relu with exact zeros", lambda x: np.maximum(x, 0), lambda g, x: g * (x > 0), np.where(np.abs(X) < 0.7, 0.0, X))
hard("relu at 1e-7", lambda x: np.maximum(x, 0), lambda g, x: g * (x > 0), np.array([1e-7, -1e-7, 1e-12]))
hard("abs at 0 with slope 0", np.abs, lambda g, x: g * np.sign(x), np.array([0.0, 1.0, -2.0]))
hard("maximum with ties", np.maximum, lambda g, x, y: (g * ((x > y) + 0.5 * (x == y)), g * ((x < y) + 0.5 * (x == y))), np.round(X), np.round(Y))  # noqa: E501  # fmt: skip
hard("log at 1e-7", np.log, lambda g, x: g / x, np.array([1e-7, 1e-12, 0.5, 3.0]))
hard("sqrt near 0", np.sqrt, lambda g, x: g / (2 * np.sqrt(x)), np.array([1e-9, 1e-4, 2.0]))
hard("reciprocal near its pole", np.reciprocal, lambda g, x: -g / x**2, np.array([1e-6, -1e-3, 5.0]))
hard("arcsin near 1", np.arcsin, lambda g, x: g / np.sqrt((1 - x) * (1 + x)), np.array([0.999999, -0.9999, 0.1]))
hard("x**1.5 at 0", lambda x: x**1.5, lambda g, x: 1.5 * g * np.sqrt(x), np.array([0.0, 0.5, 2.0]))
hard("1e8 + sin x", lambda x: 1e8 + np.sin(x), lambda g, x: g * np.cos(x), X)
hard("sum of 1e8 + sin x", lambda x: np.sum(1e8 + np.sin(x)), lambda g, x: g * np.cos(x), X)
hard("(x + 1e6)**2 - 1e12", lambda x: (x + 1e6) ** 2 - 1e12, lambda g, x: 2 * g * (x + 1e6), X)
hard("sort with gaps of 5e-7", np.sort, _order, GAPS)
hard("maximum with a gap of 5e-7", lambda x: np.max(x), lambda g, x: g * (x == np.max(x)), GAPS)
hard("scales from 1e-30 to 1e30", lambda x: x * x, lambda g, x: 2 * g * x, SCALES)
hard("scales, saturating", lambda x: np.tanh(x / SCALES), lambda g, x: g * (1 - np.tanh(x / SCALES) ** 2) / SCALES, 0.7 * SCALES)  # noqa: E501  # fmt: skip
hard("scales, one sum", lambda x: np.sum(x / SCALES), lambda g, x: g / SCALES, 0.7 * SCALES)
hard("fast oscillation", lambda x: np.sin(1e4 * x), lambda g, x: 1e4 * g * np.cos(1e4 * x), X)
hard("narrow bell", lambda x: np.exp(-((x / 1e-3) ** 2)), lambda g, x: g * np.exp(-((x / 1e-3) ** 2)) * -2e6 * x, np.array([5e-4, 2e-3, 1.0]))  # noqa: E501  # fmt: skip
hard("constant", lambda x: np.full((), 3.0), lambda g, x: np.zeros_like(x), X)
hard("constant in one argument", lambda x, y: np.sin(x), lambda g, x, y: (g * np.cos(x), np.zeros_like(y)), X, Y)
hard("integers among the arguments", embed, lambda g, t, i: (embed_vjp(g, t, i), None), normal(5, 3), IDS)
hard("booleans among the arguments", lambda m, x: np.where(m, x, 0), lambda g, m, x: (None, g * m), X > 0, X)
hard("empty array", np.tanh, tanh_vjp, np.zeros((0, 3)))
hard("one argument empty", lambda x, y: np.sum(x) + np.sum(y), lambda g, x, y: (np.full_like(x, g), np.full_like(y, g)), X, np.zeros((0, 2)))  # noqa: E501  # fmt: skip
hard("0-d", np.exp, lambda g, x: g * np.exp(x), np.array(0.3))
hard("where with a NaN in the branch not taken", lambda x, y: np.where(y > 0, x, 0), lambda g, x, y: (g * (y > 0), np.zeros_like(y)), HOLED, X)  # noqa: E501  # fmt: skip
hard("double where around sqrt", _quiet_sqrt, lambda g, x: np.where(x > 0, g / (2 * np.sqrt(np.where(x > 0, x, 1))), 0), np.where(X > 0.2, X, -1.0))  # noqa: E501  # fmt: skip
hard("masked scores at -inf", masked, masked_vjp, normal(4, 4))
hard("softmax of masked scores", lambda s: softmax(masked(s)), lambda g, s: masked_vjp(softmax_vjp(g, masked(s)), s), normal(4, 4))  # noqa: E501  # fmt: skip
hard("sum of softmax: zero gradient", lambda x: np.sum(softmax(x)), lambda g, x: softmax_vjp(np.broadcast_to(g, x.shape), x), X)  # noqa: E501  # fmt: skip
hard("float32 sum of softmax", lambda x: np.sum(softmax(x)), lambda g, x: softmax_vjp(np.broadcast_to(g, x.shape), x), X32)  # noqa: E501  # fmt: skip
hard("sum of layer norm: zero gradient", lambda x: np.sum(layer_norm(x)), lambda g, x: layer_norm_vjp(np.broadcast_to(g, x.shape), x), X)  # noqa: E501  # fmt: skip
hard("saturated softmax", softmax, softmax_vjp, 300 * X)
hard("saturated tanh", np.tanh, lambda g, x: g / np.cosh(x) ** 2, 20 * X)
hard("logarithm of a sum, far apart", lambda x: np.log(np.sum(np.exp(x - 800))) + 800, lambda g, x: g * softmax(x), np.array([800.0, 500.0, 799.0]))  # noqa: E501  # fmt: skip
hard("float32 inside a float64 function", lambda x: np.tanh(x.astype(np.float32)).astype(float), lambda g, x: tanh_vjp(g.astype(np.float32), x.astype(np.float32)).astype(float), X)  # noqa: E501  # fmt: skip
hard("float64 inside, whatever comes", lambda x: x * np.tanh(x.astype(float)), lambda g, x: g * (np.tanh(x) + x * (1 - np.tanh(x) ** 2)), X)  # noqa: E501  # fmt: skip
hard("inverse: LAPACK knows no long double", np.linalg.inv, lambda g, x: -np.linalg.inv(x).T @ g @ np.linalg.inv(x).T, normal(4, 4) + 3 * np.eye(4))  # noqa: E501  # fmt: skip
hard("transposed input", lambda x: x * np.arange(4.0), lambda g, x: g * np.arange(4.0), X.T)
hard("read-only, every other place", np.sin, lambda g, x: g * np.cos(x), np.broadcast_to(normal(12)[::2], (2, 6)))
hard("linear", lambda x: 3 * x, lambda g, x: 3 * g, X)
hard("cubic at 0", lambda x: x**3, lambda g, x: 3 * g * x * x, np.array([0.0, 1e-9, 1.0]))
hard("cosine at 0", np.cos, lambda g, x: -g * np.sin(x), np.array([0.0, 1e-9, 1.0]))
hard("a dictionary of parameters", lambda p: np.tanh(p["w"] @ p["b"]), lambda g, p: {"w": np.outer(tanh_vjp(g, p["w"] @ p["b"]), p["b"]), "b": p["w"].T @ tanh_vjp(g, p["w"] @ p["b"])}, {"w": normal(3, 4), "b": normal(4)})  # noqa: E501  # fmt: skip
hard("gradients in another order than the parameters", lambda p: p["w"] * np.sin(p["b"]), lambda g, p: {"b": g * p["w"] * np.cos(p["b"]), "w": g * np.sin(p["b"])}, {"w": np.array([0.5, -1.0, 2.0]), "b": np.array([1.0, 0.2, -0.7])})  # noqa: E501  # fmt: skip

# Gradients of which some coordinates, or all, are exactly 0, up to the last bits of what cancels.


def attend(q, k, v):
    return softmax(np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), q @ np.swapaxes(k, -1, -2), -np.inf)) @ v


def attend_vjp(g, q, k, v):
    p = softmax(np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), q @ np.swapaxes(k, -1, -2), -np.inf))
    s = p * (g @ np.swapaxes(v, -1, -2))
    s = s - p * np.sum(s, axis=-1, keepdims=True)
    return s @ k, np.swapaxes(s, -1, -2) @ q, np.swapaxes(p, -1, -2) @ g


for _tokens in (1, 3):
    for _dtype in (np.float64, np.float32):
        _q, _k, _v = (normal(2, _tokens, 4).astype(_dtype) for _ in range(3))
        hard(f"attention, {_tokens} tokens, {_dtype.__name__}: the first sees one key", attend, attend_vjp, _q, _k, _v)
for _x, _name in ((X, "float64"), (X32, "float32")):
    hard(f"x - x, {_name}", lambda x: np.sin(x) - np.sin(x), lambda g, x: g * np.cos(x) - g * np.cos(x), _x)
    hard(f"sum of squares minus itself, regrouped, {_name}", lambda x: np.sum(np.sin(x) ** 2 + np.cos(x) ** 2),
         lambda g, x: g * (2 * np.sin(x) * np.cos(x) - np.sin(2 * x)), _x)  # fmt: skip
    hard(f"a distance to itself plus 1e6, {_name}", lambda x: (x + 1e6) - x, lambda g, x: g - g, _x)
    hard(f"rows' sums of softmax, {_name}", lambda x: np.sum(softmax(x), axis=-1),
         lambda g, x: softmax_vjp(np.broadcast_to(g[:, None], x.shape), x), _x)  # fmt: skip
    hard(f"shift of a softmax, {_name}", lambda x, c: softmax(x + c), lambda g, x, c: (softmax_vjp(g, x + c), np.sum(softmax_vjp(g, x + c), axis=-1, keepdims=True)), _x, _x[:, :1].copy())  # noqa: E501  # fmt: skip
    hard(f"angle of a rotation, norm kept, {_name}", lambda a: np.cos(a) ** 2 + np.sin(a) ** 2 + 100 * a[0, 0], lambda g, a: np.where(np.arange(a.size).reshape(a.shape) == 0, 100 * np.sum(g), 0).astype(a.dtype) + g * 2 * (np.sin(a) * np.cos(a) - np.cos(a) * np.sin(a)), _x)  # noqa: E501  # fmt: skip
hard("one large constant among small terms", lambda x: np.sum(x) + 1e10, lambda g, x: np.full_like(x, g), X)
hard("a difference of large squares", lambda x: np.sum((1e4 + x) ** 2 - (1e4 - x) ** 2), lambda g, x: np.full_like(x, 4e4 * g), X)  # noqa: E501  # fmt: skip
