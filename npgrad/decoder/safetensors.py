"""Reading and writing .safetensors files: eight bytes of length, a JSON header, then the tensors' bytes.

Reading is done here rather than by the library of that name, whose NumPy side knows no bfloat16 and whose errors don't name
the tensor; a header is checked in full before anything is read. Writing is the library's (`pip install 'npgrad[llama]'`).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LONGEST_HEADER = 100_000_000  # as in the library


class CheckpointError(ValueError):
    """A checkpoint can't be read or written: the message names the file, and the tensor where there is one."""


def read(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name: bfloat16 widened to float32, others in their own dtype, in memory of their own.

    CheckpointError for a header that doesn't describe the file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise CheckpointError(f"{path}: a header of {length} bytes doesn't fit a file of {size} bytes")
        described = _parse(path, file.read(length))
        _check(path, described, size - 8 - length)
        return {name: _tensor(file, 8 + length, d) for name, d in described.items()}


def write(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors to a file, whole or not at all."""
    try:
        from safetensors.numpy import save
    except ImportError:
        raise ImportError("writing .safetensors needs the library of that name: pip install 'npgrad[llama]'") from None
    write_bytes(path, save({n: np.ascontiguousarray(t) for n, t in tensors.items()}, metadata={"format": "pt"}))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step: after a crash it has its old content or the new one."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def parse_json(path: Path, content: bytes) -> Any:
    """The JSON in a file; CheckpointError if it isn't any, or names a key twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
            raise CheckpointError(f"{path}: {twice!r} stands there twice")
        return found

    try:
        return json.loads(content, object_pairs_hook=unique)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from None


def _parse(path: Path, header: bytes) -> dict[str, Any]:
    described = parse_json(path, header)
    if not isinstance(described, dict):
        raise CheckpointError(f"{path}: the header must be an object of tensors by name")
    described.pop("__metadata__", None)
    return described


def _check(path: Path, described: dict[str, Any], available: int) -> None:
    """CheckpointError unless the tensors lie one after another and fill the file exactly."""
    spans = []
    for name, d in described.items():
        where = f"{path}: tensor {name!r}"
        if not (isinstance(d, dict) and {"dtype", "shape", "data_offsets"} <= d.keys()):
            raise CheckpointError(f"{where} must have a dtype, a shape and data_offsets")
        if d["dtype"] not in _DTYPES:
            raise CheckpointError(f"{where} has dtype {d['dtype']!r}, but only {', '.join(_DTYPES)} can be read")
        shape, offsets = d["shape"], d["data_offsets"]
        if not (_counts(shape) and _counts(offsets) and len(offsets) == 2 and len(shape) <= 32):
            raise CheckpointError(
                f"{where} has shape {shape!r} and offsets {offsets!r}, which must be whole numbers of at least 0"
            )
        needed = np.dtype(_DTYPES[d["dtype"]]).itemsize
        for n in shape:
            needed *= n
        begin, end = offsets
        if end - begin != needed:
            raise CheckpointError(
                f"{where} of shape {shape} needs {needed} bytes, but its offsets {offsets} hold {end - begin}"
            )
        if end > available:
            raise CheckpointError(f"{where} ends at byte {end} of the data, of which there are {available}")
        spans.append((begin, end, name))
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            raise CheckpointError(
                f"{path}: tensor {name!r} begins at byte {begin} of the data, but {reached} was expected"
            )
        reached = end
    if reached != available:
        raise CheckpointError(f"{path}: the tensors fill {reached} bytes of data, but the file has {available}")


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


def _tensor(file: Any, start: int, described: dict[str, Any]) -> np.ndarray:
    begin, end = described["data_offsets"]
    file.seek(start + begin)
    raw = np.frombuffer(bytearray(file.read(end - begin)), _DTYPES[described["dtype"]])
    if described["dtype"] == "BF16":  # the upper half of a float32
        raw = (raw.astype("<u4") << 16).view("<f4")
    return raw.reshape(described["shape"])


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
