"""npgrad: reverse-mode automatic differentiation over NumPy arrays, with the decoder's primitives."""

from . import optim, rules, show, tree  # noqa: F401  (rules fills the registry, show prints tapes)
from .catalogue import supported
from .check import check_grads, check_vjp
from .debug import DebugError, debug
from .errors import ReleasedTapeError
from .fused import fused
from .higher import checkpoint, hessian, hvp, jacobian
from .ops import (
    RotaryError,
    attention,
    causal_mask,
    cross_entropy,
    embedding,
    gelu,
    layer_norm,
    linear,
    log_softmax,
    logsumexp,
    rms_norm,
    rotary_pairs,
    sigmoid,
    silu,
    softmax,
    swiglu,
)
from .primitive import differentiate, primitive
from .rope import RotaryEmbedding, add_sinusoidal_position, adjacent_to_half, half_to_adjacent
from .rules.indexing import add_at, set_at
from .show import WatchfulTape
from .tape import Record, Tape
from .transforms import grad, jvp, stop_gradient, value_and_grad, vjp
from .variable import Variable

__version__ = "0.1.0"

__all__ = [
    "DebugError",
    "Record",
    "ReleasedTapeError",
    "RotaryEmbedding",
    "RotaryError",
    "Tape",
    "Variable",
    "WatchfulTape",
    "add_at",
    "add_sinusoidal_position",
    "adjacent_to_half",
    "attention",
    "causal_mask",
    "check_grads",
    "check_vjp",
    "checkpoint",
    "cross_entropy",
    "debug",
    "differentiate",
    "embedding",
    "fused",
    "gelu",
    "grad",
    "half_to_adjacent",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsumexp",
    "optim",
    "primitive",
    "rms_norm",
    "rotary_pairs",
    "set_at",
    "sigmoid",
    "silu",
    "softmax",
    "stop_gradient",
    "supported",
    "swiglu",
    "tree",
    "value_and_grad",
    "vjp",
]
