"""Generation: token after token from the logits, greedily or at random, for one prompt or several at once.

Prompts of different lengths are padded on the left, so that all continue at the same column; a mask hides the padding
and positions start at each prompt's own first token, so each continues as it would alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from .cache import Cache
from .config import Config
from .model import check_params, head, last_state

FINISHED = -1  # what a batch yields for a prompt that has come to its end
ROUNDING = 1e-12  # of a sum of probabilities in float64


def generate(
    config: Config,
    params: Any,
    prompt: Any,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Collection[int] = (),
    seed: int | Sequence[int] = 0,
) -> Iterator[Any]:
    """Continue a prompt: an iterator of token ids, each computed when it is asked for.

    prompt is a list of token ids, or a batch: a list of such lists, of any lengths. For a batch, items are integer
    arrays (batch,), −1 for prompts that are finished. A token in `stop` ends its prompt and is given out.
    Tokens are drawn from `probabilities`; repetition_penalty divides the positive logits of tokens that were there
    before, in the prompt too, and multiplies the negative ones (Keskar et al., "CTRL", arXiv:1909.05858). Each prompt
    of a batch draws from its own generator, as it would alone: give one seed for each to have different samples of
    equal prompts. Before anything is computed: ValueError for settings that make no sense, parameters that aren't the
    config's, an empty prompt, and a prompt that with max_new_tokens exceeds max_position_embeddings; TypeError for a
    setting of another type.

    >>> from npgrad.decoder import init
    >>> config = Config(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> len(list(generate(config, init(config, seed=0), [1, 2, 3], max_new_tokens=5)))
    5
    """
    check_params(config, params)
    rows, batched = _rows(config, prompt)
    if _typed("max_new_tokens", max_new_tokens, Integral, "an integer") < 0:
        raise ValueError(f"max_new_tokens must be at least 0, not {max_new_tokens}")
    longest = max(row.size for row in rows)
    if longest + max_new_tokens > config.max_position_embeddings:
        raise ValueError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones exceed max_position_embeddings "
            f"{config.max_position_embeddings}"
        )
    if not 0 < _real("repetition_penalty", repetition_penalty) < np.inf:
        raise ValueError(f"repetition_penalty must be a finite number above 0, not {repetition_penalty}")
    _check_settings(temperature, top_k, top_p)
    seeds = [seed] * len(rows) if np.ndim(seed) == 0 else list(seed)  # type: ignore[arg-type]
    if len(seeds) != len(rows):
        raise ValueError(f"{len(seeds)} seeds for {len(rows)} prompts: give one for all, or one for each")
    if isinstance(stop, str) or not isinstance(stop, Iterable):
        raise TypeError(f"stop must be a collection of token ids, such as {{5}}, not {stop!r}")
    ends = frozenset(_typed("a token of stop", token, Integral, "an integer") for token in stop)
    generators = [np.random.default_rng(s) for s in seeds]

    def choose(logits: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> int:
        if repetition_penalty != 1:
            factors = np.where(logits > 0, 1 / repetition_penalty, repetition_penalty)
            logits = np.where(seen, logits * factors, logits)
        return draw(probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p), rng)

    steps = _steps(config, params, rows, max_new_tokens, choose, ends, generators)
    return steps if batched else (int(step[0]) for step in steps)


def probabilities(
    logits: Any, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """What the next token is drawn from, in float64: softmax(logits / temperature), cut off and made to sum to 1.

    logits are (vocabulary,). At temperature 0 the most likely token has it all, the first one among equals. Kept are
    the top_k most likely tokens, then the fewest of these whose probabilities reach top_p (Holtzman et al., "The
    Curious Case of Neural Text Degeneration", arXiv:1904.09751); of equal ones the first. ValueError for a top_k
    below 1, a top_p outside (0, 1], a negative temperature, and logits without a finite maximum.

    >>> probabilities(np.log([0.3, 0.1, 0.1, 0.5]), top_p=0.75)
    array([0.375, 0.   , 0.   , 0.625])
    """
    _check_settings(temperature, top_k, top_p)
    logits = np.asarray(logits, float)
    if logits.ndim != 1 or logits.size == 0:
        raise ValueError(f"logits must have shape (vocabulary,), with at least one token, not {logits.shape}")
    top = np.max(logits)
    if not np.isfinite(top):
        raise ValueError(
            f"no token can be drawn from logits whose largest is {top}: the parameters may have overflowed"
        )
    if temperature == 0:
        p = np.zeros(logits.shape)
        p[np.argmax(logits)] = 1
        return p
    with np.errstate(over="ignore", under="ignore"):
        p = np.exp((logits - top) / temperature)
    order = np.argsort(-p, kind="stable")
    if top_k is not None:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p is not None and top_p < 1:
        before = np.cumsum(p[order]) - p[order]
        p[order[1:][before[1:] >= top_p - ROUNDING]] = 0  # the first stays, however small top_p is
        p /= p.sum()
    return p


def draw(p: np.ndarray, rng: np.random.Generator) -> int:
    """An index with probability proportional to p, whatever rounding has done to its sum; never one with none."""
    kept = np.flatnonzero(p)
    sums = np.cumsum(p[kept])
    return int(kept[min(np.searchsorted(sums, rng.random() * sums[-1], side="right"), len(kept) - 1)])


def _rows(config, prompt):
    """The prompts as integer arrays, and whether they are a batch."""
    prompt = prompt.tolist() if isinstance(prompt, np.ndarray) else prompt
    if not isinstance(prompt, Iterable):
        raise TypeError(f"a prompt must be a list of token ids, or a batch a list of such lists, not {prompt!r}")
    prompt = list(prompt)
    batched = bool(prompt) and all(isinstance(row, (list, tuple, np.ndarray)) for row in prompt)
    rows = [np.asarray(row) for row in (prompt if batched else [prompt])]
    for row in rows:
        if row.ndim != 1 or row.size == 0 or row.dtype.kind not in "iu":
            raise ValueError("a prompt must be a list of at least one token id, and a batch a list of such lists")
        if row.min() < 0 or row.max() >= config.vocab_size:
            raise IndexError(
                f"token ids must be in 0..{config.vocab_size - 1}: the prompt has {row.min()} to {row.max()}"
            )
    return rows, batched


def _typed(name, value, kind, wanted):
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, not {value!r}")
    return value


def _real(name, value, wanted="a number"):
    try:
        return float(_typed(name, value, Real, wanted))
    except OverflowError:
        return np.inf


def _check_settings(temperature, top_k, top_p):
    if not 0 <= _real("temperature", temperature) < np.inf:
        raise ValueError(f"temperature must be a finite number of at least 0, which means greedy, not {temperature}")
    if top_k is not None and _typed("top_k", top_k, Integral, "an integer, or None") < 1:
        raise ValueError(f"top_k must be at least 1, or None for all tokens, not {top_k}")
    if top_p is not None and not 0 < _real("top_p", top_p, "a number, or None") <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, or None, not {top_p}")


def _steps(config, params, rows, count, choose, stop, generators):
    """Arrays (batch,) of new tokens."""
    if count == 0:
        return
    batch, longest = len(rows), max(row.size for row in rows)
    starts = np.array([longest - row.size for row in rows])[:, None]
    visible = np.arange(longest + count) >= starts
    padded = bool(starts.any())
    seen = np.zeros((batch, config.vocab_size), bool)
    tokens = np.zeros((batch, longest), np.int64)
    for i, row in enumerate(rows):
        tokens[i, longest - row.size :] = row
        seen[i, row] = True
    cache = Cache(config, batch, longest + count, params["embedding"].dtype)
    going = np.ones(batch, bool)
    while True:
        end = cache.length + tokens.shape[1]
        state = last_state(config, params, tokens, cache=cache, mask=visible[:, :end] if padded else None)
        logits = head(params, state[:, -1])
        chosen = np.full(batch, FINISHED)
        for i in np.flatnonzero(going).tolist():
            chosen[i] = choose(logits[i], seen[i], generators[i])
            seen[i, chosen[i]] = True
            going[i] = chosen[i] not in stop
        yield chosen
        if not going.any() or end + 1 >= longest + count:
            return
        tokens = np.maximum(chosen, 0)[:, None]
