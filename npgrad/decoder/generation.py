"""Generation: from logits to the next token, over and over, with a cache."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from .cache import Cache
from .config import Config
from .model import forward


def generate(
    config: Config,
    params: Any,
    prompt: Sequence[int] | Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Collection[int] = (),
    seed: int = 0,
) -> Iterator[Any]:
    """An iterator over new token ids, one at a time as they are made; over arrays of them for a list of prompts.

    Temperature 0 always takes the likeliest token, the first of equals. Otherwise tokens are drawn from `probabilities`.
    repetition_penalty divides the positive logits of tokens that have occurred, and multiplies the negative ones
    (Keskar et al., "CTRL", arXiv:1909.05858, section 4.1). A token in `stop` is the last. Prompts of different lengths are
    padded on the left, which changes nothing: row i is what its prompt alone gives with seed + i; once a row has stopped its
    entries are −1. ValueError for settings out of range, empty prompts, and more tokens than max_position_embeddings.
    """
    probabilities(
        np.zeros(config.vocab_size), temperature=temperature, top_k=top_k, top_p=top_p
    )  # refuses bad settings
    if not 0 < repetition_penalty < np.inf:
        raise ValueError(f"repetition_penalty must be a number above 0, not {repetition_penalty}")
    if operator.index(max_new_tokens) < 0:
        raise ValueError(f"max_new_tokens must be at least 0, not {max_new_tokens}")
    single = len(prompt) > 0 and np.ndim(prompt[0]) == 0
    rows = [np.asarray(row) for row in ([prompt] if single else prompt)]
    if not rows or any(row.ndim != 1 or row.size == 0 for row in rows):
        raise ValueError("a prompt must be a sequence of at least one token id, or a list of such sequences")
    longest = max(map(len, rows))
    if longest + max_new_tokens > config.max_position_embeddings:
        raise ValueError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones exceed max_position_embeddings, "
            f"{config.max_position_embeddings}"
        )

    def choose(scores: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> int:
        if repetition_penalty != 1.0:
            scores[seen] *= np.where(scores[seen] < 0, repetition_penalty, 1 / repetition_penalty)
        return _draw(probabilities(scores, temperature=temperature, top_k=top_k, top_p=top_p), rng)

    def steps() -> Iterator[np.ndarray]:
        tokens = np.zeros((len(rows), longest), np.int64)
        mask = np.ones((len(rows), longest + max_new_tokens), bool)
        for i, row in enumerate(rows):
            tokens[i, longest - len(row) :] = row
            mask[i, : longest - len(row)] = False
        padded = None if mask.all() else mask
        cache = Cache(config, len(rows), max(longest + max_new_tokens, 1), params["embed"].dtype)
        rngs = [np.random.default_rng(seed + i) for i in range(len(rows))]
        seen, done = [*rows], np.zeros(len(rows), bool)
        for _ in range(max_new_tokens):
            end = cache.length + tokens.shape[1]
            logits = forward(config, params, tokens, cache=cache, mask=None if padded is None else padded[:, :end])
            new = np.full(len(rows), -1)
            for i in np.flatnonzero(~done):
                new[i] = choose(logits[i, -1].astype(np.float64), seen[i], rngs[i])
                seen[i] = np.append(seen[i], new[i])
                done[i] = new[i] in stop
            yield new
            if done.all():
                return
            tokens = np.maximum(new, 0)[:, None]  # a row that has stopped goes on with anything: nobody reads it

    return (int(new[0]) for new in steps()) if single else steps()


def probabilities(
    logits: Any, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """The distribution that the next token is drawn from, (vocabulary,) float64, given its logits (vocabulary,).

    softmax(logits / temperature), all on the first of the largest at temperature 0; of that only the top_k likeliest,
    then only the smallest set of likeliest tokens whose probabilities sum to at least top_p (Holtzman et al., "The
    Curious Case of Neural Text Degeneration", arXiv:1904.09751, section 3.1). Of equals the first go first. top_k
    beyond the vocabulary keeps all. ValueError for settings out of range and for NaN among the logits.

    >>> probabilities(np.log([0.3, 0.1, 0.1, 0.5]), top_p=0.75).round(3)
    array([0.375, 0.   , 0.   , 0.625])
    """
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature must be a number of at least 0, not {temperature}")
    if top_k is not None and operator.index(top_k) < 1:
        raise ValueError(f"top_k must be at least 1, or None to keep all tokens, not {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
    logits = np.asarray(logits, np.float64)
    if np.isnan(logits).any() or np.max(logits) == np.inf:
        raise ValueError("there are NaN or infinite logits: the parameters or the training have gone wrong")
    order = np.argsort(-logits, kind="stable")
    kept = np.zeros(logits.shape)
    if temperature == 0:
        kept[order[0]] = 1
        return kept
    order = order[:top_k]
    weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    weights /= weights.sum()
    if top_p is not None and top_p < 1:
        weights = weights[np.cumsum(weights) - weights < top_p]
        weights /= weights.sum()
    kept[order[: len(weights)]] = weights
    return kept


def _draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """A token by inversion, which needs no exact sum of 1."""
    total = np.cumsum(weights)
    return int(np.searchsorted(total, rng.random() * total[-1], side="right").clip(max=np.flatnonzero(weights)[-1]))
