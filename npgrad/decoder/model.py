"""The decoder itself: parameters as a plain tree, and functions of them.

Each block adds two branches to the residual stream: attention, where tokens read from those before them, and a
feed-forward layer (SwiGLU), where each works alone; both look at the stream through a root-mean-square norm. Position
enters by rotating queries and keys, in adjacent pairs. Matrices are (inputs, outputs), so that a layer is x @ w; with
tied embeddings there is no "head", and the one table is used at both ends.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import tree as trees
from ..higher import checkpoint
from ..ops import (
    attention,
    cross_entropy,
    embedding,
    feed_forward,
    linear,
    rms_norm,
    self_attention,
)
from ..ops.self_attention import merge_heads, split_heads, turned
from .cache import Cache
from .config import Config, as_float_dtype

IGNORED = -100  # the target that means "don't count this token", as everywhere in the field


def shapes(config: Config) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The shapes of the parameters by name: of those of every block, and of those outside."""
    width, hidden = config.hidden_size, config.intermediate_size
    queries, shared = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    biases = {"bq": (queries,), "bk": (shared,), "bv": (shared,)} if config.input_bias else {}
    block = {
        "attention_norm": (width,),
        "wq": (width, queries),
        "wk": (width, shared),
        "wv": (width, shared),
        "wo": (queries, width),
        **biases,
        **({"bo": (width,)} if config.output_bias else {}),
        "feed_forward_norm": (width,),
        "gate": (width, hidden),
        "up": (width, hidden),
        "down": (hidden, width),
    }
    head = {} if config.tie_word_embeddings else {"head": (width, config.vocab_size)}
    return block, {"embedding": (config.vocab_size, width), "norm": (width,), **head}


def skeleton(config: Config) -> dict[str, Any]:
    """A tree like the parameters', with arrays of the right shapes that take no memory."""
    block, rest = (
        {name: np.broadcast_to(np.float32(0), shape) for name, shape in named.items()} for named in shapes(config)
    )
    blocks = [dict(block) for _ in range(config.num_hidden_layers)]
    return {"embedding": rest.pop("embedding"), "blocks": blocks, **rest}


def check_params(config: Config, params: Any) -> None:
    """ValueError, with the path, unless a tree has the config's blocks, names and shapes."""
    block, rest = shapes(config)
    try:
        outside = {name: leaf.shape for name, leaf in params.items() if name != "blocks"}
        fits = len(params["blocks"]) == config.num_hidden_layers and outside == rest
        fits = fits and all({name: leaf.shape for name, leaf in b.items()} == block for b in params["blocks"])
    except (AttributeError, KeyError, TypeError):
        fits = False
    if not fits:  # paths take longer than all the rest, so only now
        trees.map_with_path(_check_shape, skeleton(config), params, path="params")


def _check_shape(path: str, like: np.ndarray, leaf: Any) -> None:
    if np.shape(leaf) != like.shape:
        raise ValueError(f"{path} has shape {np.shape(leaf)}, but the config asks for {like.shape}")


def init(config: Config, seed: int, dtype: Any = np.float32) -> dict[str, Any]:
    """Random parameters: matrices of standard deviation 1/√inputs, norms of ones, biases of zeros.

    Those that write to the residual stream are smaller by √(2 · layers), which keeps its variance independent of
    depth (Radford et al., "Language Models are Unsupervised Multitask Learners", section 2.3). TypeError for a dtype
    that is not of floats.

    >>> config = Config(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> init(config, seed=0)["blocks"][0]["wq"].shape
    (8, 8)
    """
    rng, dtype = np.random.default_rng(seed), as_float_dtype(dtype)
    into_residual = (2 * config.num_hidden_layers) ** -0.5
    scales = {"wo": into_residual, "down": into_residual, "head": 0.5}

    def random(name: str, like: np.ndarray) -> np.ndarray:
        if like.ndim == 1:
            return np.full(like.shape, float("norm" in name), dtype)
        return (rng.normal(size=like.shape) * scales.get(name, 1.0) * like.shape[0] ** -0.5).astype(dtype)

    params: dict[str, Any] = skeleton(config)
    table = rng.normal(size=params["embedding"].shape)
    table *= config.hidden_size**-0.5 if config.tie_word_embeddings else 1.0  # tied, it is the head too
    blocks = [{name: random(name, like) for name, like in block.items()} for block in params["blocks"]]
    rest: dict[str, Any] = {name: random(name, params[name]) for name in ("norm", "head") if name in params}
    return {"embedding": table.astype(dtype), "blocks": blocks, **rest}


def forward(
    config: Config, params: Any, tokens: Any, *, cache: Cache | None = None, positions: Any = None, mask: Any = None
) -> Any:
    """The logits of each next token: tokens (batch, tokens) of integers, logits (batch, tokens, vocabulary).

    With a cache, `tokens` are those after its `length`, which grows by their number; any division of a sequence into
    such calls gives the logits of one call without a cache. positions (batch, tokens) or (tokens,) are where the
    tokens stand. mask (batch, keys) is boolean, False where a token is padding, for the tokens in the cache and the
    new ones. Unless positions are given, tokens are counted on from the cache's length; with a mask, only those that
    are no padding: a prompt padded on the left has the logits that it has alone. Logits at padding mean nothing.

    IndexError for a token outside the vocabulary; ValueError if something doesn't fit, parameters that aren't the
    config's and a cache of another dtype than theirs among it. Nothing is written then.
    """
    check_params(config, params)
    return head(params, last_state(config, params, tokens, cache=cache, positions=positions, mask=mask))


def loss(config: Config, params: Any, tokens: Any, targets: Any, *, recompute: bool = False) -> Any:
    """The mean cross-entropy, in nats, of `targets`: (batch, tokens), each the token after the one in `tokens`.

    Targets of −100 are not counted. With `recompute` only the blocks' inputs are kept, and each block runs once more
    when its gradient is due: memory for the arrays of one block instead of all, at a third of the time more.
    """
    check_params(config, params)
    x = last_state(config, params, tokens, recompute=recompute)
    return cross_entropy(head(params, x), targets, ignore_index=IGNORED)


def hidden_states(
    config: Config, params: Any, tokens: Any, *, cache: Cache | None = None, positions: Any = None, mask: Any = None
) -> Iterator[Any]:
    """The residual stream (batch, tokens, hidden_size): embedded, then after each block, the last one normed.

    Arguments are those of `forward`. A cache's length grows when the last state has been taken.
    """
    check_params(config, params)
    return _states(config, params, tokens, cache, positions, mask)


def _states(config, params, tokens, cache=None, positions=None, mask=None, recompute=False):
    tokens = np.asarray(tokens)
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have shape (batch, tokens), not {tokens.shape}")
    batch, count = tokens.shape
    start = 0 if cache is None else cache.length
    if cache is not None:
        cache.check(batch, count)
    if mask is not None:
        mask = np.asarray(mask)
        if mask.shape != (batch, start + count):
            raise ValueError(f"mask must have shape (batch, keys), here {(batch, start + count)}, not {mask.shape}")
        if mask.dtype != bool:
            raise TypeError(f"mask must be boolean, True where a token is no padding, not {mask.dtype}")
        if positions is None:
            positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, start:]
        mask = mask[:, None, None, :]
    if cache is not None:
        length = cache.capacity
    else:
        length = count if positions is None else int(np.max(positions, initial=-1)) + 1
    offset = start if positions is None else 0
    tables = config.rotary(length).tables((batch, 1, count, config.head_dim), offset, positions=positions)
    x = embedding(params["embedding"], tokens)
    apply = checkpoint(_block) if recompute else _block
    for layer, block in enumerate(params["blocks"]):
        yield x
        x = apply(config, block, x, tables, mask, cache, layer)
    if cache is not None:
        cache.length += count
    yield rms_norm(x, params["norm"], eps=config.rms_norm_eps)


def last_state(config: Config, params: Any, tokens: Any, **options: Any) -> Any:
    """The last of the hidden states, of parameters that fit; the others are let go as the next one comes."""
    return collections.deque(_states(config, params, tokens, **options), maxlen=1).pop()


def head(params: Any, x: Any) -> Any:
    """The logits of the last hidden state."""
    return linear(x, params["head"] if "head" in params else params["embedding"].T)


def _block(config, block, x, tables, mask, cache, layer):
    h = rms_norm(x, block["attention_norm"], eps=config.rms_norm_eps)
    x = x + _attend(config, block, h, tables, mask, cache, layer)
    h = rms_norm(x, block["feed_forward_norm"], eps=config.rms_norm_eps)
    return x + feed_forward(h, block["gate"], block["up"], block["down"])


def _attend(config, block, h, tables, mask, cache, layer):
    if cache is None:
        weights = (block.get(name) for name in ("wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"))
        options = {"heads": config.num_attention_heads, "mask": mask, "window": config.sliding_window}
        return self_attention(h, *weights, tables=tables, **options)
    q = split_heads(linear(h, block["wq"], block.get("bq")), config.num_attention_heads)
    k = split_heads(linear(h, block["wk"], block.get("bk")), config.num_key_value_heads)
    v = split_heads(linear(h, block["wv"], block.get("bv")), config.num_key_value_heads)
    k, v = cache.extend(layer, turned(k, tables), v)
    out = attention(turned(q, tables), k, v, mask=mask, window=config.sliding_window)
    return linear(merge_heads(out), block["wo"], block.get("bo"))
