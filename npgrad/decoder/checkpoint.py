"""Checkpoints: folders with a config.json and .safetensors files, as transformers writes and reads them.

Published weights are (outputs, inputs), and their queries and keys in the half layout; ours are (inputs, outputs)
and adjacent. `from_llama` and `to_llama` go between the two, for parameters and for trees of gradients alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..rope import adjacent_to_half, half_to_adjacent
from .config import Config
from .model import shapes
from .safetensors import CheckpointError, parse_json, read, write, write_bytes

_LARGEST_JSON = 50_000_000
_BLOCK = {
    "attention_norm": "input_layernorm.weight",
    "wq": "self_attn.q_proj.weight",
    "wk": "self_attn.k_proj.weight",
    "wv": "self_attn.v_proj.weight",
    "wo": "self_attn.o_proj.weight",
    "bq": "self_attn.q_proj.bias",
    "bk": "self_attn.k_proj.bias",
    "bv": "self_attn.v_proj.bias",
    "bo": "self_attn.o_proj.bias",
    "mlp_norm": "post_attention_layernorm.weight",
    "w_gate": "mlp.gate_proj.weight",
    "w_up": "mlp.up_proj.weight",
    "w_down": "mlp.down_proj.weight",
}
_TOP = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}


def load(folder: str | Path, dtype: Any = None) -> tuple[Config, dict[str, Any]]:
    """The configuration and parameters in a folder: config.json, and model.safetensors or several with an index.

    float32 and float64 weights keep their dtype, float16 and bfloat16 become float32, unless dtype is given.
    CheckpointError names what is missing, unexpected, misshapen or malformed, before any parameter is made.
    """
    folder = Path(folder)
    try:
        config = Config.from_dict(_json(folder / "config.json"))
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from None
    tensors: dict[str, np.ndarray] = {}
    for path, names in _files(folder):
        found = read(path)
        missing = names - found.keys()
        if missing:
            raise CheckpointError(f"{path}: the index says that {_list(missing)} is here, but it isn't")
        if found.keys() & tensors.keys():
            raise CheckpointError(f"{path}: {_list(found.keys() & tensors.keys())} is in another file too")
        tensors.update(found)
    wanted = {
        n: t.astype(dtype or (np.float32 if t.dtype.itemsize < 4 else t.dtype), copy=False) for n, t in tensors.items()
    }
    return config, from_llama(config, wanted)


def save(folder: str | Path, config: Config, params: Any) -> None:
    """Write config.json and model.safetensors, each whole or not at all; transformers' AutoModelForCausalLM opens them.

    The folder is made if there is none. CheckpointError for parameters that don't fit the configuration.
    """
    folder = Path(folder)
    tensors = to_llama(config, params)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.safetensors", tensors)
    described = {**config.to_dict(), "torch_dtype": str(tensors[_TOP["embed"]].dtype)}
    write_bytes(folder / "config.json", (json.dumps(described, indent=2) + "\n").encode())


def to_llama(config: Config, params: Any) -> dict[str, np.ndarray]:
    """The tensors of a tree like the parameters (or of gradients) under their published names and in their layout."""
    tensors, faults = {}, []
    for name, key, place, shape in _entries(config, params):
        value = place.get(key)
        if np.shape(value) != shape:
            faults.append(f"{name} ({key}) should have shape {shape}, not {None if value is None else np.shape(value)}")
            continue
        value = np.asarray(value)
        if value.ndim == 2 and key != "embed":
            value = value.T
        tensors[name] = adjacent_to_half(value, config.head_dim, axis=0) if key in ("wq", "wk", "bq", "bk") else value
    if faults:
        raise CheckpointError("the parameters don't fit the configuration: " + "; ".join(faults))
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def from_llama(config: Config, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of parameters from tensors under their published names; the inverse of `to_llama`.

    CheckpointError lists every missing, unexpected and misshapen tensor by name. With tied embeddings the head may be
    there too, if it equals the embeddings.
    """
    params: dict[str, Any] = shapes(config)
    entries = list(_entries(config, params))
    _check_names(config, tensors, entries)
    for name, key, place, _ in entries:
        value = np.asarray(tensors[name])
        if key in ("wq", "wk", "bq", "bk"):
            value = half_to_adjacent(value, config.head_dim, axis=0)
        place[key] = np.array(value.T if value.ndim == 2 and key != "embed" else value, order="C")
    return params


def _entries(config: Config, params: Any) -> Iterator[tuple[str, str, dict, tuple[int, ...]]]:
    """Each parameter's published name, its key, the dict of `params` in which it stands, and its shape."""
    expected = shapes(config)
    for key, shape in expected.items():
        if key != "blocks":
            yield _TOP[key], key, params, shape
    if len(params["blocks"]) != config.num_hidden_layers:
        raise CheckpointError(f"there are {len(params['blocks'])} blocks for {config.num_hidden_layers} hidden layers")
    for i, block in enumerate(expected["blocks"]):
        for key, shape in block.items():
            yield f"model.layers.{i}.{_BLOCK[key]}", key, params["blocks"][i], shape


def _check_names(config: Config, tensors: Mapping[str, Any], entries: list) -> None:
    def published(key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if key == "embed" else shape[::-1]

    expected = {name: published(key, shape) for name, key, _, shape in entries}
    head = _TOP["head"]
    ignored = {n for n in tensors if n.endswith("rotary_emb.inv_freq")}  # old files store what we compute
    if config.tie_word_embeddings and head in tensors:
        if not np.array_equal(tensors[head], tensors.get(_TOP["embed"], ())):
            raise CheckpointError(
                f"{head} differs from {_TOP['embed']}, but tie_word_embeddings says that they are one"
            )
        ignored |= {head}
    missing, unexpected = expected.keys() - tensors.keys(), tensors.keys() - expected.keys() - ignored
    faults = [f"missing: {_list(missing)}"] if missing else []
    faults += [f"unexpected: {_list(unexpected)}"] if unexpected else []
    faults += [
        f"{name} should have shape {shape}, not {np.shape(tensors[name])}"
        for name, shape in expected.items()
        if name in tensors and np.shape(tensors[name]) != shape
    ]
    if faults:
        raise CheckpointError("the tensors don't fit the configuration: " + "; ".join(faults))


def _files(folder: Path) -> list[tuple[Path, set[str]]]:
    """The files that hold the weights, each with the tensors that must be there."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return [(folder / "model.safetensors", set())]
    if not index.is_file():
        raise CheckpointError(f"{folder}: there is neither model.safetensors nor {index.name}")
    found = _json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
        raise CheckpointError(f"{index}: weight_map must be an object of file names by tensor")
    files: dict[Path, set[str]] = {}
    for name, place in places.items():
        path = folder / place
        if Path(place).name != place or path.resolve().parent != folder.resolve() or not path.is_file():
            raise CheckpointError(f"{index}: {name} is said to be in {place!r}, which is no file of this folder")
        files.setdefault(path, set()).add(name)
    return list(files.items())


def _json(path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file")
    if path.stat().st_size > _LARGEST_JSON:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes are too many for a configuration")
    return parse_json(path, path.read_bytes())


def _list(names: Any) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
