"""Examples of the decoder's primitives: each function, each option, grouped heads, masks, rows with nothing to see."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..ops.activation import normal_cdf
from .examples import example, normal

for _f in (ops.softmax, ops.log_softmax, ops.logsumexp):
    example(_f, normal(3, 5))
    example(_f, normal(3, 5), axis=0)
    example(_f, normal(2, 3, 4), axis=1)
    example(_f, normal(2, 3, 4), axis=(0, 2))
    example(_f, normal(2, 3), axis=None)
    example(_f, normal(4) * 300 + 1000)
example(ops.logsumexp, normal(2, 3, 4), axis=(0, 2), keepdims=True)

example(ops.causal_mask, normal(2, 4, 4))
example(ops.causal_mask, normal(2, 5), offset=1)
example(ops.causal_mask, normal(5, 6), window=2)

example(ops.rms_norm, normal(2, 3, 4), normal(4))
example(ops.rms_norm, normal(5), normal(5, seed=1), eps=0.5)
example(ops.layer_norm, normal(2, 3, 4), normal(4), normal(4, seed=1))
example(ops.layer_norm, normal(5), normal(5, seed=1), normal(5, seed=2), eps=0.5)

for _f in (ops.sigmoid, ops.silu, ops.gelu, normal_cdf):
    example(_f, normal(3, 4) * 3)
example(ops.gelu, normal(3, 4) * 3, approximate="tanh")
example(ops.swiglu, normal(3, 4) * 3, normal(3, 4, seed=1))
example(ops.swiglu, normal(3, 1), normal(4))

example(ops.embedding, normal(5, 3), np.array([[0, 2, 2], [4, 0, 2]]))
example(ops.embedding, normal(4, 2), 3)

example(ops.linear, normal(2, 3, 4), normal(4, 5))
example(ops.linear, normal(3, 4), normal(4, 2), normal(2))
example(ops.linear, normal(4), normal(4, 2), normal(2))

example(ops.feed_forward, normal(2, 3, 4), normal(4, 5), normal(4, 5, seed=1), normal(5, 3))
example(ops.feed_forward, normal(4), normal(4, 2), normal(4, 2, seed=1), normal(2, 4))

example(ops.cross_entropy, normal(2, 3, 5), np.array([[0, 4, 2], [1, 1, 3]]))
example(ops.cross_entropy, normal(4, 3), np.array([0, -1, 2, -1]), ignore_index=-1)
example(ops.cross_entropy, normal(4) * 300, 2)

Q, K, V = normal(2, 4, 3, 2), normal(2, 2, 3, 2), normal(2, 2, 3, 3)  # two query heads to each key/value head
example(ops.attention, Q, K, V)
example(ops.attention, Q, K, V, causal=False)
example(ops.attention, Q, K, V, window=2, scale=0.3)
example(ops.attention, Q, K, V, mask=np.array([[[[False, True, True]]], [[[True, True, False]]]]))
example(ops.attention, normal(2, 2, 4), normal(2, 5, 4), normal(2, 5, 4, seed=1))
example(ops.attention, normal(1, 4, 2), normal(1, 3, 2), normal(1, 3, 2, seed=1), offset=-1)
example(ops.attention, normal(2, 3, 2) * 30, normal(2, 3, 2, seed=1) * 30, normal(2, 3, 2, seed=2))

X, WQ, WK, WV, WO = normal(2, 3, 4), normal(4, 8), normal(4, 4), normal(4, 4, seed=1), normal(8, 3)
BIASES = normal(8), normal(4), normal(4, seed=1), normal(3)
ANGLES = np.outer(np.arange(3), [1.0, 0.3])
TURN = np.cos(ANGLES), np.sin(ANGLES)
example(ops.self_attention, X, WQ, WK, WV, WO, heads=2, tables=TURN)
example(
    ops.self_attention,
    X,
    WQ,
    WK,
    WV,
    WO,
    *BIASES,
    heads=4,
    window=2,
    mask=np.array([[[[False, True, True]]], [[[True] * 3]]]),
)
example(
    ops.self_attention, X[0], WQ, WK, WV, WO, *BIASES, heads=2, tables=(TURN[0][:, :1], TURN[1][:, :1]), layout="half"
)
