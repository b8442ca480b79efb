"""Training that can stop at any moment and go on as if it hadn't: checkpoints of whole runs, and a polite Ctrl-C.

    start = 0
    if training.states(folder):
        start = training.resume(folder, optimizer, rng).step
    with training.stop_on_interrupt() as stopped:
        for step in range(start, steps):
            ...
            training.save(folder, optimizer, rng, step=step + 1)
            if stopped():
                break

A state is one .safetensors file with the optimiser's arrays (parameters, moments, counts); its header holds the step,
the random generator's state and whatever JSON the loop adds, such as its place in the data. It is written beside its
place, flushed to the disk and renamed, and the last two are kept: a crash at any instant leaves one that can be read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import tree as trees
from .safetensors_file import read_header, read_metadata, read_tensor, write_tensors

FORMAT, VERSION = "npgrad training state", 1
KEPT = 2


class State(NamedTuple):
    """What a file says beside its arrays: how many steps were done, and the JSON that the loop had added."""

    step: int
    extra: dict[str, Any]


class StateError(ValueError):
    """A file that can't be gone on from; `previous` is an earlier one that can, or None."""

    def __init__(self, message: str, previous: Path | None = None):
        super().__init__(message)
        self.previous = previous


def save(
    folder: str | os.PathLike,
    optimizer: Any,
    rng: np.random.Generator,
    *,
    step: int,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write the state after `step` steps to the folder, which is made if need be, and keep the last two; its path.

    `extra` is any dict that JSON can hold. OSError, naming the file, where the disk is full or the folder read-only:
    the files that were there are intact, and the optimiser goes on as it was.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"step-{step:09}.safetensors"
    described = {
        "format": FORMAT,
        "version": str(VERSION),
        "step": str(step),
        "random": json.dumps(rng.bit_generator.state, default=lambda a: a.tolist()),
        "extra": json.dumps(extra or {}),
    }
    write_tensors(file, dict(trees.items(optimizer.state(), "state")), described)
    earlier = [old for old in states(folder) if old <= file]  # later ones belong to another run
    for old in (*earlier[:-KEPT], *folder.glob(".step-*.safetensors.*")):  # the last are what killed runs left
        old.unlink(missing_ok=True)
    return file


def states(folder: str | os.PathLike) -> list[Path]:
    """The states in a folder, oldest first; [] if there is none."""
    return sorted(Path(folder).glob("step-*.safetensors"))


def resume(folder: str | os.PathLike, optimizer: Any, rng: np.random.Generator) -> State:
    """Put optimiser and generator into the newest state of the folder; see `restore`.

    StateError if it can't be read, with what was found and which earlier one can be given to `restore` instead.
    """
    found = states(folder)
    if not found:
        raise StateError(f"{folder} has no step-*.safetensors to go on from")
    try:
        return restore(found[-1], optimizer, rng)
    except StateError as error:
        previous = next((file for file in reversed(found[:-1]) if _is_readable(file)), None)
        advice = f"remove it to go on from {previous.name}" if previous else "there is no earlier one that can be read"
        raise StateError(f"{error}: {advice}", previous) from error


def restore(file: str | os.PathLike, optimizer: Any, rng: np.random.Generator) -> State:
    """Put optimiser and generator into the state in a file, bit for bit.

    StateError if the file is truncated, not a state, of a newer format, or of another model or optimiser; then neither
    has changed.
    """
    file = Path(file)
    state, random, arrays = _read(file)
    like = dict(trees.items(optimizer.state(), "state"))
    if like.keys() != arrays.keys():
        differing = sorted(like.keys() ^ arrays.keys())
        where = "the file lacks" if differing[0] in like else "only the file has"
        raise StateError(f"{file} is of another model or optimiser: {where} {differing[0]}")
    before = rng.bit_generator.state
    try:
        rng.bit_generator.state = random
        optimizer.restore(trees.unflatten(optimizer.state(), [arrays[path] for path in like]))
    except (ValueError, TypeError, KeyError) as error:
        rng.bit_generator.state = before
        raise StateError(f"{file} is of another model, optimiser or random generator: {error}") from error
    return state


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """In this block Ctrl-C only makes the function that it yields return True, so that a step is not torn apart.

    A second Ctrl-C raises KeyboardInterrupt at once. Outside the main thread, where Python has no signals, Ctrl-C is
    left alone.
    """
    asked = False

    def ask(*_: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: asked
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _read(file: Path) -> tuple[State, dict[str, Any], dict[str, np.ndarray]]:
    """The state, the random generator's state and the arrays by name."""
    try:
        described = read_metadata(file)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {file}: training.states(folder) lists what is there") from error
    except ValueError as error:
        raise StateError(f"{file} can't be read: {error}") from error
    if described.get("format") != FORMAT:
        raise StateError(f"{file} is not a training state: its format is {described.get('format', 'not given')!r}")
    if described.get("version") != str(VERSION):
        raise StateError(f"{file} has format version {described.get('version')}, but this npgrad reads {VERSION}")
    try:
        state = State(int(described["step"]), json.loads(described["extra"]))
        random = json.loads(described["random"])
        return state, random, {name: read_tensor(entry) for name, entry in read_header(file).items()}
    except (ValueError, KeyError, RecursionError) as error:
        raise StateError(f"{file} can't be read: {error}") from error


def _is_readable(file: Path) -> bool:
    try:
        _read(file)
    except (StateError, OSError):
        return False
    return True
