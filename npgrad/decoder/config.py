"""What a checkpoint's config.json says about a decoder, under the names that Llama's has.

A `Config` that exists is consistent: sizes that don't fit each other, and settings that this decoder doesn't have,
are refused when it is made, so that no weights are read for nothing and none are used wrongly.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..rope import DEFAULT_BASE, RotaryEmbedding, frequencies

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
FEWEST_ROWS = 64  # of a table of rotations
LARGEST = {"num_hidden_layers": 10_000, "head_dim": 65_536}  # a config must not make its reader take memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes and settings of a decoder.

    num_key_value_heads is num_attention_heads, and head_dim is hidden_size / num_attention_heads, unless given.
    rope_scaling is a dict with "rope_type", as `RotaryEmbedding` takes; a rope_theta in it becomes the config's.
    attention_bias puts a bias on all four projections of Llama's attention; model_type "qwen2" has them on queries,
    keys and values, and no choice. "mistral" has no biases; sliding_window is how many tokens its attention sees, the
    last one among them, all unless given. ValueError, with the reason, for what is inconsistent or unknown.

    >>> Config(vocab_size=9, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2).head_dim
    4
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = None  # type: ignore[assignment]  # always an integer once made
    head_dim: int = None  # type: ignore[assignment]
    max_position_embeddings: int = 2048
    rope_theta: float = DEFAULT_BASE
    rope_scaling: Mapping[str, Any] | None = None
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    sliding_window: int | None = None
    model_type: str = "llama"
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self) -> None:
        if self.model_type not in ARCHITECTURES:
            raise ValueError(f"unknown architecture {self.model_type!r}: known are {', '.join(ARCHITECTURES)}")
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name)))
            _check(field, getattr(self, field.name))
        if self.sliding_window is not None and self.model_type != "mistral":
            raise ValueError(f"sliding_window is a setting of mistral's, not of {self.model_type}'s")
        if self.attention_bias and self.model_type == "mistral":
            raise ValueError("attention_bias must be False: mistral's projections have no biases")
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        if self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                    f"{self.num_attention_heads}: give head_dim"
                )
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}: each key/value head serves the same number of query heads"
            )
        _check(next(f for f in dataclasses.fields(self) if f.name == "head_dim"), self.head_dim)
        self._settle_rotary()

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Config:
        """The Config of a config.json, in the older spelling (rope_theta, rope_scaling) or the newer (rope_parameters).

        Keys that don't change what the decoder computes are ignored; ValueError for a setting that it doesn't have.
        """
        if not isinstance(given, Mapping):
            raise ValueError(f"a config must be an object of keys and values, not {given!r:.60}")
        kind = given.get("model_type")
        if kind is None:
            names = given.get("architectures")
            name = names[0] if isinstance(names, list) and names else names or "none given"
            kind = next((known for known, architecture in ARCHITECTURES.items() if name == architecture), name)
        if not isinstance(kind, str) or kind not in ARCHITECTURES:
            raise ValueError(f"unknown architecture {kind!r}: known are {', '.join(ARCHITECTURES)}")
        for key, only in {"hidden_act": "silu", "mlp_bias": False, "use_sliding_window": False,
                          "quantization_config": None, "partial_rotary_factor": 1.0}.items():  # fmt: skip
            if given.get(key, only) not in (only, None):
                raise ValueError(f"{key} {given[key]!r} is not supported, only {only!r}")
        names = [field.name for field in dataclasses.fields(cls)]
        kept = {name: given[name] for name in names if given.get(name) is not None}
        if kind != "mistral":
            kept.pop("sliding_window", None)  # where use_sliding_window is false, it says nothing
        scaling = given.get("rope_parameters") or given.get("rope_scaling") or {}
        if not isinstance(scaling, Mapping):
            raise ValueError(f"rope_parameters, or rope_scaling, must be an object, not {scaling!r}")
        outside = {key: given[key] for key in ("original_max_position_embeddings",) if given.get(key) is not None}
        kept["rope_scaling"] = scaling = {**outside, **{k: v for k, v in scaling.items() if v is not None}}
        kept["rope_theta"] = scaling.pop("rope_theta", kept.get("rope_theta", DEFAULT_BASE))
        missing = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in kept]
        if missing:
            raise ValueError(f"the config has no {', '.join(missing)}")
        return cls(**{**kept, "model_type": kind})

    def to_dict(self) -> dict[str, Any]:
        """What config.json holds, in the spelling that older and newer readers know."""
        return {"architectures": [ARCHITECTURES[self.model_type]], "hidden_act": "silu", **dataclasses.asdict(self)}

    @property
    def input_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""
        return self.attention_bias or self.model_type == "qwen2"

    @property
    def output_bias(self) -> bool:
        """Whether attention's output projection has a bias."""
        return self.attention_bias and self.model_type == "llama"

    def _settle_rotary(self) -> None:
        """Bring rope_theta and rope_scaling to one spelling, and refuse what is wrong with them; no table is made."""
        given = dict(self.rope_scaling or {})
        kind = given.pop("type", "default")
        kind = given.pop("rope_type", kind)
        if given.pop("partial_rotary_factor", 1.0) != 1.0:
            raise ValueError("partial_rotary_factor: a decoder of this shape rotates whole heads")
        capacity = self.max_position_embeddings
        if given.pop("max_position_embeddings", capacity) != capacity:
            raise ValueError(f"rope_scaling has another max_position_embeddings than the config, which has {capacity}")
        theta = given.pop("rope_theta", self.rope_theta)
        if self.rope_theta not in (DEFAULT_BASE, theta):
            raise ValueError(f"rope_theta is {self.rope_theta}, but rope_scaling has {theta}: give one of them")
        object.__setattr__(self, "rope_theta", theta)
        object.__setattr__(self, "rope_scaling", {"rope_type": kind, **given})
        theta, factor = frequencies(self.head_dim, DEFAULT_BASE, self._scaling(), max_positions=capacity)
        with np.errstate(all="ignore"):
            finite = np.isfinite(theta * capacity * factor).all()
        if not finite:
            raise ValueError(f"rope_theta {self.rope_theta} and the rope_scaling give angles that are not finite")
        if kind == "default":
            object.__setattr__(self, "rope_scaling", None)

    def _scaling(self) -> dict[str, Any]:
        sizes = {"rope_theta": self.rope_theta, "max_position_embeddings": self.max_position_embeddings}
        return {**sizes, **(self.rope_scaling or {})}

    @functools.cached_property
    def _scaling_text(self) -> str:  # what can be a key
        return json.dumps(self._scaling())

    def rotary(self, length: int) -> RotaryEmbedding:
        """The rotations, for sequences of up to `length` tokens: "longrope" has others for short ones.

        The table has rows for these positions and a few more, up to max_position_embeddings. Where a cache is used,
        `length` is its capacity, so that all its keys are rotated alike.
        """
        capacity, scaling = self.max_position_embeddings, self.rope_scaling or {}
        if scaling.get("rope_type") == "longrope":
            original = int(scaling.get("original_max_position_embeddings", capacity))
            capacity = original if length <= original else capacity
        rows = max(FEWEST_ROWS, 1 << max(length - 1, 0).bit_length())  # a sequence that grows needs a new table seldom
        return _rotary(self.head_dim, min(rows, capacity), self._scaling_text)


@functools.lru_cache(maxsize=4)
def _rotary(dim: int, rows: int, scaling: str) -> RotaryEmbedding:
    return RotaryEmbedding(dim, rows, scaling=json.loads(scaling))


def as_float_dtype(dtype: Any) -> np.dtype:
    """The dtype; TypeError unless it is one of real floating-point numbers."""
    found = np.dtype(dtype)
    if found.kind != "f":
        raise TypeError(f"a decoder computes with floating-point numbers, such as float32, not {found}")
    return found


def _plain(value: Any) -> Any:
    """The value with NumPy's scalars and arrays as Python's, and without entries of a dict that are None."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


def _check(field: dataclasses.Field, value: Any) -> None:
    if value is None and field.default is None:
        return
    good, wanted = True, ""
    if field.type == "int" or field.name == "sliding_window":
        most = LARGEST.get(field.name, 2**31 - 1)
        good, wanted = type(value) is int and 1 <= value <= most, f"an integer from 1 to {most}"
    elif field.type == "bool":
        good, wanted = isinstance(value, bool), "True or False"
    elif field.name.endswith("token_id"):
        ids = value if isinstance(value, list) else [value]
        good, wanted = all(type(i) is int and i >= 0 for i in ids), "a token's number, or a list of them"
    elif field.name == "rms_norm_eps":
        good, wanted = isinstance(value, (int, float)) and 0 <= value < 1, "a small number of at least 0"
    elif field.name == "rope_scaling":
        good, wanted = isinstance(value, Mapping), 'a dict with "rope_type"'
    if not good:
        raise ValueError(f"{field.name} must be {wanted}, not {value!r}")
