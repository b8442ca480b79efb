"""Files of tensors in the .safetensors format: written whole or not at all, and validated before they are read.

Such a file is a length (8 bytes), a JSON header with each tensor's dtype, shape and place, and the tensors' bytes: data
and nothing that runs. The header may have a "__metadata__" object of strings. A header that lies is a ValueError before
any memory is taken for its tensors.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
INTEGERS = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
DTYPES = {**FLOATS, **INTEGERS}
LARGEST_HEADER = 10_000_000  # bytes: room for tens of thousands of tensors, and parsed in a moment
LARGEST_RANK = 64  # NumPy's own
METADATA = "__metadata__"


class Entry(NamedTuple):
    """Where a tensor stands in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int


def read_header(file: Path, name: str | None = None) -> dict[str, Entry]:
    """The tensors of a .safetensors file by name; ValueError unless they fill the file without gap or overlap.

    The error calls the file `name`, if it is known by another one than its own.
    """
    known_as = name or file.name
    header, start, size = _read_json_header(file, known_as)
    header.pop(METADATA, None)
    places = []
    for name, described in header.items():
        dtype, shape, begin, end = _described(known_as, name, described)
        if not 0 <= begin <= end <= size:
            raise ValueError(f"{known_as}: {name} has offsets [{begin}, {end}] in {size} bytes of data")
        needed = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        if end - begin != needed:
            raise ValueError(f"{known_as}: {name} needs {needed} bytes for {dtype} {shape}, but has {end - begin}")
        places.append((begin, end, name, Entry(file, dtype, shape, start + begin)))
    filled = 0
    for begin, end, name, _ in sorted(places):
        if begin != filled:
            raise ValueError(f"{known_as}: {name} has offset {begin}, but the tensors before it end at {filled}")
        filled = end
    if filled != size:
        raise ValueError(f"{known_as}: {size - filled} bytes after the last tensor are in no tensor")
    return {name: entry for _, _, name, entry in places}


def read_metadata(file: Path) -> dict[str, str]:
    """The strings in the header of a .safetensors file, {} if it has none."""
    metadata = _read_json_header(file, file.name)[0].get(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{file.name}: {METADATA} must be an object of strings")
    return metadata


def read_tensor(entry: Entry, dtype: Any = None) -> np.ndarray:
    """A tensor's values, in its own dtype (float32 for bfloat16, which NumPy doesn't have) unless one is given."""
    raw = np.fromfile(entry.file, DTYPES[entry.dtype], math.prod(entry.shape), offset=entry.start).reshape(entry.shape)
    if entry.dtype == "BF16":  # the upper half of a float32
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(raw.dtype.newbyteorder("=") if dtype is None else dtype, copy=False)


def write_tensors(file: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays by name, largest items first so that each is aligned; see `replace` for what a failure leaves.

    TypeError, with nothing written, for an array that is not of float16, float32, float64 or integers.
    """
    names = {np.dtype(code): name for name, code in DTYPES.items() if name != "BF16"}
    arrays = sorted(((name, np.asarray(a)) for name, a in tensors.items()), key=lambda item: -item[1].dtype.itemsize)
    header: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for name, array in arrays:
        little = array.dtype.newbyteorder("<")
        if little not in names:
            raise TypeError(f"{name} is {array.dtype}: a .safetensors file holds {', '.join(map(str, names))}")
        offsets = [end, end := end + array.nbytes]
        header[name] = {"dtype": names[little], "shape": list(array.shape), "data_offsets": offsets}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)

    def write(stream: BinaryIO) -> None:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, array in arrays:
            stream.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)

    replace(file, write)


def replace(file: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Have `write` fill a new file and put it in file's place in one step: there is the old one or the new, whole.

    OSError, naming the file, if the disk is full or the folder can't be written; then the old file is as it was.
    """
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.unlink(missing_ok=True)
        with new.open("xb") as stream:  # a link that stands there is not written through
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())  # or the name could reach the disk before the bytes
        os.replace(new, file)
        _flush_names(file.parent)
    except OSError as error:
        raise OSError(error.errno, f"{file} could not be written: {error.strerror or error}") from error
    finally:
        new.unlink(missing_ok=True)


def _flush_names(folder: Path) -> None:
    """Have the disk know a folder's new names, where folders can be opened: a power cut then finds them too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read_json_header(file: Path, known_as: str) -> tuple[dict[str, Any], int, int]:
    """The header as it stands, and the start and size of the data after it."""
    if file.exists() and not file.is_file():
        raise ValueError(f"{file} is not a regular file")  # opening a pipe would wait for ever
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise ValueError(f"{known_as}: a header of {length} bytes doesn't fit a file of {size} bytes")
        try:
            header = json.loads(stream.read(length), object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{known_as}: the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{known_as}: the header must be an object of tensors by name")
    return header, 8 + length, size - 8 - length


def _described(known_as: str, name: str, described: Any) -> tuple[str, tuple[int, ...], int, int]:
    try:
        dtype, shape, (begin, end) = described["dtype"], described["shape"], described["data_offsets"]
        counts = isinstance(shape, list) and all(type(n) is int for n in (*shape, begin, end))
        good = counts and isinstance(dtype, str) and len(shape) <= LARGEST_RANK
        good = good and all(0 <= n < 2**63 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        good = False
    if not good:
        raise ValueError(f"{known_as}: the header's entry of {name} needs a dtype, a shape and two offsets")
    if dtype not in DTYPES:
        raise ValueError(f"{known_as}: {name} has dtype {dtype!r}: readable are {', '.join(DTYPES)}")
    return dtype, tuple(shape), begin, end


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found
