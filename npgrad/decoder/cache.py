"""The key/value cache: what attention needs of the tokens already seen, so that each new one costs one column.

Memory is allocated once. Keys are stored rotated, at their absolute positions, so nothing in the cache ever changes:
a step writes the new tokens' keys and values behind the others and reads a view of the filled part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import as_integer
from ..variable import Variable
from .config import Config, as_float_dtype


class Cache:
    """Room for the keys and values of `capacity` tokens, for each sequence of a batch; `length` of them are filled.

    `keys` and `values` are (layers, batch, key/value heads, capacity, head_dim). capacity is max_position_embeddings
    unless given; dtype is that of the parameters that it will be used with, TypeError if it is not of floats. `forward`
    fills it; setting `length` to a smaller number forgets the tokens after it.

    >>> config = Config(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=3, num_attention_heads=2)
    >>> Cache(config, capacity=16).keys.shape
    (3, 1, 2, 16, 4)
    """

    def __init__(self, config: Config, batch: int = 1, capacity: int | None = None, dtype: Any = np.float32):
        capacity = config.max_position_embeddings if capacity is None else as_integer(capacity, "capacity")
        if not 1 <= capacity <= config.max_position_embeddings:
            raise ValueError(
                f"a cache's capacity must be in 1..{config.max_position_embeddings} (max_position_embeddings), "
                f"not {capacity}"
            )
        dtype, batch = as_float_dtype(dtype), as_integer(batch, "batch")
        if batch < 0:
            raise ValueError(f"a cache is for a batch of at least 0 sequences, not {batch}")
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, capacity, config.head_dim)
        self.keys, self.values = np.zeros(shape, dtype), np.zeros(shape, dtype)
        self.capacity, self.length = capacity, 0

    def check(self, batch: int, tokens: int) -> None:
        """ValueError unless so many more tokens of a batch of this size fit."""
        if batch != self.keys.shape[1]:
            raise ValueError(f"tokens of {batch} sequences don't fit a cache for {self.keys.shape[1]}")
        if self.length + tokens > self.capacity:
            raise ValueError(
                f"{tokens} tokens after {self.length} exceed the cache's capacity of {self.capacity}: make it larger"
            )

    def extend(self, layer: int, keys: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Write new keys and values behind the filled part; views of it with them. `length` stays, for other layers."""
        if isinstance(keys, Variable) or isinstance(values, Variable):
            raise TypeError("a cache holds plain arrays: compute gradients without one")
        if not keys.dtype == values.dtype == self.keys.dtype:
            raise ValueError(
                f"keys are {keys.dtype} and values {values.dtype}, but the cache is {self.keys.dtype}: make it with "
                "the parameters' dtype"
            )
        end = self.length + keys.shape[-2]
        views = []
        for store, new in ((self.keys, keys), (self.values, values)):
            store[layer, :, :, self.length : end] = new
            views.append(store[layer, :, :, :end])
        return views[0], views[1]
