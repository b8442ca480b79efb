"""Checkpoints: folders with config.json and .safetensors files, as published models have them.

A .safetensors file is a length, a JSON header with each tensor's dtype, shape and place, and the tensors' bytes: data
and nothing that runs. Headers are validated and all names and shapes compared with what the config asks for before a
tensor is read. Published matrices are (outputs, inputs), and their queries and keys have the half layout of rotary
pairs; inside npgrad they are (inputs, outputs) with adjacent pairs. `to_llama` and `from_llama` are the way between.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import tree as trees
from ..rope import adjacent_to_half, half_to_adjacent
from .config import Config
from .model import skeleton

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
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LARGEST_HEADER = 100_000_000  # bytes; the format's own limit


def to_llama(config: Config, params: Any) -> dict[str, Any]:
    """The parameters, or gradients of their shapes, under their public names, in the half layout.

    With tied embeddings there is one tensor, model.embed_tokens.weight. ValueError if the tree isn't the config's.

    >>> config = Config(vocab_size=9, hidden_size=8, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2)
    >>> from npgrad.decoder import init
    >>> to_llama(config, init(config, seed=0))["model.layers.0.mlp.gate_proj.weight"].shape
    (6, 8)
    """

    def check(path: str, like: np.ndarray, leaf: Any) -> None:
        if leaf.shape != like.shape:
            raise ValueError(f"{path} has shape {leaf.shape}, but the config asks for {like.shape}")

    trees.map_with_path(check, skeleton(config), params, path="params")
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
    FileNotFoundError if a file isn't there, ValueError for what is wrong with one. Pickled weights are never read.
    """
    folder = Path(folder)
    config = Config.from_dict(_read_json(folder / "config.json"))
    entries: dict[str, _Entry] = {}
    for file in _weight_files(folder):
        for name, entry in read_header(file).items():
            if name in entries:
                raise ValueError(f"{name} is in two files: {entries[name].file.name} and {file.name}")
            entries[name] = entry
    entries = {name: entry for name, entry in entries.items() if not name.endswith(".rotary_emb.inv_freq")}
    _check_names(config, {name: entry.shape for name, entry in entries.items()})
    return config, from_llama(config, {name: read_tensor(entry, dtype) for name, entry in entries.items()})


def save(folder: str | os.PathLike, config: Config, params: Any) -> None:
    """Write config.json and model.safetensors, which `load` reads and transformers' from_pretrained opens.

    Each file is written whole beside its place and then put there: after a crash it is the old one or the new one.
    ValueError, with nothing written, if the parameters aren't the config's, or not float16, float32 or float64.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError("saving a checkpoint needs safetensors: pip install 'npgrad[llama]'") from error
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in to_llama(config, params).items()}
    dtypes = {str(tensor.dtype) for tensor in tensors.values()}
    if not dtypes <= {"float16", "float32", "float64"}:
        raise ValueError(f"checkpoints hold float16, float32 or float64, not {', '.join(sorted(dtypes))}")
    described = {**config.to_dict(), "dtype": max(dtypes), "torch_dtype": max(dtypes)}
    text = json.dumps({key: value for key, value in described.items() if value is not None}, indent=2) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / WEIGHTS, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    _replace(folder / "config.json", lambda path: path.write_text(text))


class _Entry(NamedTuple):
    """Where a tensor stands in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int


def read_header(file: Path) -> dict[str, _Entry]:
    """The tensors of a .safetensors file by name; ValueError unless they fill the file without gap or overlap."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise ValueError(f"{file.name}: a header of {length} bytes doesn't fit a file of {size} bytes")
        try:
            header = json.loads(stream.read(length), object_pairs_hook=_without_duplicates)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{file.name}: the header is not valid JSON") from error
    if not isinstance(header, dict):
        raise ValueError(f"{file.name}: the header must be an object of tensors by name")
    header.pop("__metadata__", None)
    places = []
    for name, described in header.items():
        dtype, shape, begin, end = _described(file, name, described)
        if not 0 <= begin <= end <= size - 8 - length:
            raise ValueError(f"{file.name}: {name} has offsets [{begin}, {end}] in {size - 8 - length} bytes of data")
        needed = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        if end - begin != needed:
            raise ValueError(f"{file.name}: {name} needs {needed} bytes for {dtype} {shape}, but has {end - begin}")
        places.append((begin, end, name, _Entry(file, dtype, shape, 8 + length + begin)))
    filled = 0
    for begin, end, name, _ in sorted(places):
        if begin != filled:
            raise ValueError(f"{file.name}: {name} has offset {begin}, but the tensors before it end at {filled}")
        filled = end
    if filled != size - 8 - length:
        raise ValueError(f"{file.name}: {size - 8 - length - filled} bytes after the last tensor are in no tensor")
    return {name: entry for _, _, name, entry in places}


def read_tensor(entry: _Entry, dtype: Any = None) -> np.ndarray:
    """A tensor's values, float16 and bfloat16 widened to float32 unless a dtype is given."""
    raw = np.fromfile(entry.file, DTYPES[entry.dtype], math.prod(entry.shape), offset=entry.start).reshape(entry.shape)
    if entry.dtype == "BF16":  # the upper half of a float32
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    own = np.float64 if entry.dtype == "F64" else np.float32
    return raw.astype(own if dtype is None else dtype, copy=False)


def _described(file: Path, name: str, described: Any) -> tuple[str, tuple[int, ...], int, int]:
    try:
        dtype, shape, (begin, end) = described["dtype"], described["shape"], described["data_offsets"]
        counts = isinstance(shape, list) and all(type(n) is int for n in (*shape, begin, end))
        good = counts and min(shape, default=0) >= 0 and isinstance(dtype, str)
    except (TypeError, KeyError, ValueError):
        good = False
    if not good:
        raise ValueError(f"{file.name}: the header's entry of {name} needs dtype, shape and two data_offsets")
    if dtype not in DTYPES:
        raise ValueError(f"{file.name}: {name} has dtype {dtype!r}: readable are {', '.join(DTYPES)}")
    return dtype, tuple(shape), begin, end


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"the header names a tensor or a key twice, among {', '.join(name for name, _ in pairs)}")
    return found


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if not (folder / INDEX).exists():
        raise FileNotFoundError(
            f"{folder} has neither {WEIGHTS} nor {INDEX}: other formats are not read, pickled ones on purpose"
        )
    index = _read_json(folder / INDEX).get("weight_map")
    names = sorted(set(index.values())) if isinstance(index, dict) else []
    for name in names or [None]:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{INDEX}: weight_map must name .safetensors files of this folder, not {name!r}")
    return [folder / name for name in names]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
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


def _replace(file: Path, write: Any) -> None:
    """Have `write` make a new file and put it in file's place in one step."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(new)
        with new.open("rb+") as stream:
            os.fsync(stream.fileno())  # or the name could reach the disk before the bytes
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)
