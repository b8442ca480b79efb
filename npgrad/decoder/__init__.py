"""A Llama-shaped decoder in plain functions: parameters are a tree, checkpoints are the field's own."""

from .cache import Cache
from .checkpoint import from_llama, load, save, to_llama
from .config import Config
from .generation import generate, probabilities
from .model import forward, hidden_states, init, loss

__all__ = [
    "Cache",
    "Config",
    "forward",
    "from_llama",
    "generate",
    "hidden_states",
    "init",
    "load",
    "loss",
    "probabilities",
    "save",
    "to_llama",
]
