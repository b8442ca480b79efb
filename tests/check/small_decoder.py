"""A decoder of two blocks, 2,000 parameters, in plain NumPy over npgrad's primitives: what the checker is tried on.

`loss` is written as one would write it. `batched_loss` is the same decoder written so that every parameter may have one
more leading axis.
"""

import numpy as np

import npgrad as ng

BATCH, TOKENS, WIDTH, HEADS, HIDDEN, VOCABULARY = 2, 6, 8, 2, 20, 30
RNG = np.random.default_rng(7)
TEXT = RNG.integers(0, VOCABULARY, (BATCH, TOKENS + 1))
INPUTS, TARGETS = TEXT[:, :-1], TEXT[:, 1:]
ROPE = ng.RotaryEmbedding(WIDTH // HEADS, TOKENS)
ONE_HOT = np.eye(VOCABULARY)


def matrix(*shape):
    return RNG.normal(size=shape) / np.sqrt(shape[0])


def block():
    return {
        "norm": 1 + 0.1 * RNG.normal(size=WIDTH),
        **{name: matrix(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")},
        "norm2": 1 + 0.1 * RNG.normal(size=WIDTH),
        "gate": matrix(WIDTH, HIDDEN),
        "up": matrix(WIDTH, HIDDEN),
        "down": matrix(HIDDEN, WIDTH),
    }


PARAMS = {
    "embedding": matrix(VOCABULARY, WIDTH),
    "blocks": [block(), block()],
    "norm": 1 + 0.1 * RNG.normal(size=WIDTH),
    "head": matrix(WIDTH, VOCABULARY),
}
SIZE = sum(x.size for x in ng.tree.leaves(PARAMS))


def heads(x):
    return np.swapaxes(np.reshape(x, (*x.shape[:-1], HEADS, WIDTH // HEADS)), -3, -2)


def attend(q, k, v):
    q, k = (ng.rotary_pairs(heads(x), ROPE.cosines, ROPE.sines) for x in (q, k))
    p = ng.softmax(ng.causal_mask(q @ np.swapaxes(k, -1, -2) / np.sqrt(WIDTH // HEADS)))
    mixed = np.swapaxes(p @ heads(v), -3, -2)
    return np.reshape(mixed, (*mixed.shape[:-2], WIDTH))


def loss(params):
    x = ng.embedding(params["embedding"], INPUTS)
    for b in params["blocks"]:
        h = ng.rms_norm(x, b["norm"])
        x = x + attend(h @ b["wq"], h @ b["wk"], h @ b["wv"]) @ b["wo"]
        h = ng.rms_norm(x, b["norm2"])
        x = x + (ng.silu(h @ b["gate"]) * (h @ b["up"])) @ b["down"]
    return ng.cross_entropy(ng.rms_norm(x, params["norm"]) @ params["head"], TARGETS)


def batched_loss(params):
    def weight(w):
        return w[..., None, :, :]

    def norm(x, w):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w[..., None, None, :]

    x = ONE_HOT[INPUTS] @ weight(params["embedding"])
    for b in params["blocks"]:
        h = norm(x, b["norm"])
        x = x + attend(*(h @ weight(b[name]) for name in ("wq", "wk", "wv"))) @ weight(b["wo"])
        h = norm(x, b["norm2"])
        x = x + (ng.silu(h @ weight(b["gate"])) * (h @ weight(b["up"]))) @ weight(b["down"])
    z = ng.log_softmax(norm(x, params["norm"]) @ weight(params["head"]))
    return -np.sum(z * ONE_HOT[TARGETS], axis=(-3, -2, -1)) / TARGETS.size
