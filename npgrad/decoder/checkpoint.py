"""Checkpoints: folders with config.json and .safetensors files, as published models have them.

Nothing that a folder holds is run; headers are validated, and all names and shapes compared with what the config asks
for, before a tensor is read. Links are followed within the folder, and from a cache of published models, which is made
of links, to its blobs; no other, so that a folder from elsewhere can't have this machine's other files read.

Published matrices are (outputs, inputs), and their queries and keys have the half layout of rotary pairs; inside npgrad
they are (inputs, outputs) with adjacent pairs. `to_llama` and `from_llama` are the way between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import tree as trees
from ..rope import adjacent_to_half, half_to_adjacent
from ..safetensors_file import FLOATS, Entry, read_header, read_tensor, replace, write_tensors
from .config import Config, as_float_dtype
from .model import check_params, skeleton

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
BLOCK_NAMES = {
    "attention_norm": "input_layernorm.weight",
    "wq": "self_attn.q_proj.weight",
    "wk": "self_attn.k_proj.weight",
    "wv": "self_attn.v_proj.weight",
    "wo": "self_attn.o_proj.weight",
    "bq": "self_attn.q_proj.bias",
    "bk": "self_attn.k_proj.bias",
    "bv": "self_attn.v_proj.bias",
    "bo": "self_attn.o_proj.bias",
    "feed_forward_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
ROTATED = ("wq", "bq", "wk", "bk")
LARGEST_JSON = 10_000_000  # bytes of a configuration or an index


def to_llama(config: Config, params: Any) -> dict[str, Any]:
    """The parameters, or gradients of their shapes, under their public names, in the half layout.

    With tied embeddings there is one tensor, model.embed_tokens.weight. ValueError if the tree isn't the config's.

    >>> config = Config(vocab_size=9, hidden_size=8, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2)
    >>> from npgrad.decoder import init
    >>> to_llama(config, init(config, seed=0))["model.layers.0.mlp.gate_proj.weight"].shape
    (6, 8)
    """
    check_params(config, params)
    tensors = {}
    for name, key, leaf in _named(params):
        if key in ROTATED:
            leaf = adjacent_to_half(leaf, config.head_dim, axis=-1)
        tensors[name] = leaf if key == "embedding" else leaf.T
    return tensors


def from_llama(config: Config, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of parameters, or of gradients, from tensors under their public names: undoes `to_llama`.

    A tied checkpoint may have lm_head.weight too if it equals the embedding. ValueError lists every tensor that is
    missing, unexpected or of another shape than the config asks for.
    """
    _check_names(config, {name: tensor.shape for name, tensor in tensors.items()})
    table = tensors["model.embed_tokens.weight"]
    if config.tie_word_embeddings and not np.array_equal(tensors.get("lm_head.weight", table), table, equal_nan=True):
        raise ValueError("lm_head.weight differs from model.embed_tokens.weight, but the config ties them")
    params = skeleton(config)

    def converted(name: str, key: str) -> Any:
        leaf = tensors[name] if key == "embedding" else np.ascontiguousarray(tensors[name].T)
        return half_to_adjacent(leaf, config.head_dim, axis=-1) if key in ROTATED else leaf

    return trees.unflatten(params, [converted(name, key) for name, key, _ in _named(params)])


def load(folder: str | os.PathLike, dtype: Any = None) -> tuple[Config, dict[str, Any]]:
    """The Config and parameters of a folder with config.json and model.safetensors, or several files and their index.

    float32 and float64 are kept, float16 and bfloat16 widened to float32, unless `dtype` says what to have.
    FileNotFoundError if a file isn't there, ValueError for what is wrong with one or for a link that leads out of the
    folder, TypeError for a dtype that is not of floats. Pickled weights are never read.
    """
    dtype = None if dtype is None else as_float_dtype(dtype)
    folder = Path(folder)
    config = Config.from_dict(_read_json(folder, "config.json"))
    entries: dict[str, Entry] = {}
    homes: dict[str, str] = {}
    for file in _weight_files(folder):
        for name, entry in read_header(regular_file(folder, file), file).items():
            if name in entries:
                raise ValueError(f"{name} is in two files: {homes[name]} and {file}")
            entries[name], homes[name] = entry, file
    entries = {name: entry for name, entry in entries.items() if not name.endswith(".rotary_emb.inv_freq")}
    _check_names(config, {name: entry.shape for name, entry in entries.items()})
    wrong = [f"{name} is {entry.dtype}" for name, entry in entries.items() if entry.dtype not in FLOATS]
    if wrong:
        raise ValueError(f"weights must be {', '.join(FLOATS)}, but {', '.join(wrong)}")
    return config, from_llama(config, {name: _read(entry, dtype) for name, entry in entries.items()})


def save(folder: str | os.PathLike, config: Config, params: Any) -> None:
    """Write config.json and model.safetensors, which `load` reads and transformers' from_pretrained opens.

    Each file is written whole beside its place and then put there: after a crash it is the old one or the new one.
    ValueError, with nothing written, if the parameters aren't the config's, or not float16, float32 or float64.
    """
    tensors = to_llama(config, params)
    dtypes = {str(tensor.dtype) for tensor in tensors.values()}
    if not dtypes <= {"float16", "float32", "float64"}:
        raise ValueError(f"checkpoints hold float16, float32 or float64, not {', '.join(sorted(dtypes))}")
    described = {**config.to_dict(), "dtype": max(dtypes), "torch_dtype": max(dtypes)}
    text = json.dumps({key: value for key, value in described.items() if value is not None}, indent=2) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    replace(folder / "config.json", lambda stream: stream.write(text.encode()))


def _read(entry: Entry, dtype: Any) -> np.ndarray:
    """A tensor in the dtype asked for, otherwise in its own, but float16 widened to float32."""
    return read_tensor(entry, np.float32 if dtype is None and entry.dtype == "F16" else dtype)


def _weight_files(folder: Path) -> list[str]:
    if os.path.lexists(folder / WEIGHTS):
        return [WEIGHTS]
    if not os.path.lexists(folder / INDEX):
        raise FileNotFoundError(
            f"{folder} has neither {WEIGHTS} nor {INDEX}: other formats are not read, pickled ones on purpose"
        )
    index = _read_json(folder, INDEX).get("weight_map")
    names = list(index.values()) if isinstance(index, dict) else []
    for name in names or [None]:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{INDEX}: weight_map must name .safetensors files of this folder, not {name!r}")
    return sorted(set(names))


def regular_file(folder: Path, name: str) -> Path:
    """Where the folder's file of this name really is; ValueError for a link that leads out, or to no regular file.

    In a cache of published models, snapshots/<revision>/config.json is a link to the cache's blobs/<hash>.
    """
    file = folder / name
    try:
        home, place = (Path(os.path.realpath(path, strict=True)) for path in (folder, file))
    except OSError as error:
        if file.is_symlink():
            raise ValueError(f"{file} is a link that leads to no file: put the file itself there") from error
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise FileNotFoundError(f"{folder} has no {name}: give the folder of a whole checkpoint") from error
        raise
    if not place.is_file():
        raise ValueError(f"{file} is not a regular file")
    allowed = [home, *(parent.with_name("blobs") for parent in home.parents if parent.name == "snapshots")]
    if not any(place.is_relative_to(whole) for whole in allowed):
        raise ValueError(f"{file} is a link out of its folder, to {place}: if that is meant, put a copy of it there")
    return place


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    file = folder / name
    with regular_file(folder, name).open("rb") as stream:
        text = stream.read(LARGEST_JSON + 1)
    if len(text) > LARGEST_JSON:
        raise ValueError(f"{file} has more than {LARGEST_JSON} bytes: that is no {name}")
    try:
        found = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} must hold a JSON object")
    return found


def _check_names(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """ValueError listing the tensors that aren't as the config asks."""
    wanted = {
        name: leaf.shape if key == "embedding" else leaf.shape[::-1] for name, key, leaf in _named(skeleton(config))
    }
    optional = {"lm_head.weight"} if config.tie_word_embeddings else set()
    wrong = [f"missing {name}" for name in wanted if name not in shapes]
    wrong += [f"unexpected {name}" for name in shapes if name not in wanted and name not in optional]
    wrong += [
        f"{name} has shape {tuple(shapes[name])}, not {shape}"
        for name, shape in wanted.items()
        if name in shapes and tuple(shapes[name]) != shape
    ]
    if wrong:
        raise ValueError(f"the tensors don't fit the config: {'; '.join(wrong)}")


def _named(params: Any) -> Iterator[tuple[str, str, Any]]:
    """Each leaf's public name, key and value, in the tree's order."""
    rest = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
    for key, value in params.items():
        if key != "blocks":
            yield rest[key], key, value
            continue
        for layer, block in enumerate(value):
            for name, leaf in block.items():
                yield f"model.layers.{layer}.{BLOCK_NAMES[name]}", name, leaf
