"""The decoder's primitives: each one's forward, its derivative and its plain reference stand together.

All take floats of any precision, and of several the highest has its way, as in NumPy: float32 features with float64
weights give float64. Each gradient has the precision of its argument. Only tables of rotations, which are made in
float64, are rounded to what they turn.
"""

from .activation import gelu, sigmoid, silu, swiglu
from .attention import attention
from .embedding import embedding
from .feed_forward import feed_forward
from .linear import linear
from .loss import cross_entropy
from .mask import causal_mask
from .norm import layer_norm, rms_norm
from .rotary import RotaryError, rotary_pairs
from .self_attention import self_attention
from .softmax import log_softmax, logsumexp, softmax

__all__ = [
    "RotaryError",
    "attention",
    "causal_mask",
    "cross_entropy",
    "embedding",
    "feed_forward",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsumexp",
    "rms_norm",
    "rotary_pairs",
    "self_attention",
    "sigmoid",
    "silu",
    "softmax",
    "swiglu",
]
