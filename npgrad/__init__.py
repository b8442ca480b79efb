"""npgrad: reverse-mode automatic differentiation over NumPy arrays, with the decoder's primitives."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import optim, rules, tree  # noqa: F401  (rules fills the registry)
from .catalogue import supported
from .debug import DebugError, debug
from .errors import ReleasedTapeError
from .fused import fused
from .higher import checkpoint, hessian, hvp, jacobian, jvp
from .ops import (
    RotaryError,
    attention,
    causal_mask,
    cross_entropy,
    embedding,
    feed_forward,
    gelu,
    layer_norm,
    linear,
    log_softmax,
    logsumexp,
    rms_norm,
    rotary_pairs,
    self_attention,
    sigmoid,
    silu,
    softmax,
    swiglu,
)
from .primitive import differentiate, primitive
from .rope import RotaryEmbedding, add_sinusoidal_position, adjacent_to_half, half_to_adjacent
from .rules.indexing import add_at, set_at
from .tape import Record, Tape
from .transforms import grad, value_and_grad, vjp
from .variable import Variable, stop_gradient

if TYPE_CHECKING:
    from . import check, decoder, parallel, show  # noqa: F401
    from .check import check_grads, check_vjp
    from .show import WatchfulTape

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
    "feed_forward",
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
    "self_attention",
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

# These modules are loaded when they are first asked for: many programs need none of them.

_LATER = {name: name for name in ("check", "decoder", "parallel", "show")}
_LATER |= {"check_grads": "check", "check_vjp": "check", "WatchfulTape": "show"}

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f".{_LATER[name]}", __name__)
        return module if name == _LATER[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


class _Shown:
    """A method of Tape or Variable that `npgrad.show` puts in this one's place when it is first asked for."""

    def __init__(self, owner: type, name: str):
        self.owner, self.name = owner, name
        setattr(owner, name, self)

    def __get__(self, instance: Any, owner: type) -> Any:
        importlib.import_module(".show", __name__).attach()
        return vars(self.owner)[self.name].__get__(instance, owner)  # a subclass may have one of its own, that calls it


for _name in ("__str__", "_repr_html_", "backward_listing", "save_page", "table", "to_dot"):
    _Shown(Tape, _name)
_Shown(Variable, "_repr_html_")
