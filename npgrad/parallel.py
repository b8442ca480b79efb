"""Using the machine fully: memory that stays with the process, the parts of a batch on threads, or on other machines.

A training step allocates the same arrays again and again. Left alone, the C library returns each large one to the
system and asks for it anew, cleared page by page: a third of a small decoder's step goes there. `keep_memory` ends
that. NumPy lets go of Python's lock inside its loops, so that two threads with half the batch each keep two cores
busy: `value_and_grad`. Its matrix products should then use one core each, which is the environment's to say, before
NumPy is imported:

    OPENBLAS_NUM_THREADS=1 python train.py

(MKL_NUM_THREADS, VECLIB_MAXIMUM_THREADS for NumPy with another library.) In a step of a few milliseconds threads wait
for each other's Python as long as they save: it is best off whole, with `ng.value_and_grad`. Where the two may be
close, `value_and_grad` here times its first calls and keeps to the quicker way.

Processes that MPI started, on one machine or on several, each take some rows of the batch, weight what they find by
their share of it, and have the sum from `all_reduce`; then all of them take the same step:

    value, gradients = step_loss(params, batch[comm.rank :: comm.size])  # comm = mpi4py.MPI.COMM_WORLD
    mine = ng.tree.map(lambda x: x / comm.size, (value, gradients))
    value, gradients = parallel.all_reduce(comm, mine)
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from . import tree as trees
from .errors import argument_names
from .transforms import value_and_grad as _value_and_grad
from .variable import Variable

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # of mallopt, in malloc.h


def keep_memory() -> bool:
    """Make the C library keep what is freed, for this process's next arrays; True if it can (glibc: most of Linux).

    Call it once, at a program's start. The most memory in use at any moment stays the same, but it is given back to
    the system only when the process ends. Each thread has a pool of its own, whose memory stays in its core's cache.
    Elsewhere than on glibc nothing happens and the result is False. Source: mallopt(3).

    >>> keep_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    largest = 2**25  # of the mmap threshold: glibc refuses more
    pool = 2**26  # a thread's: one that is empty would be given back, if it weren't called padding
    threads = 1000  # with pools of their own: there are few by default, and sharing them is slow
    options = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, pool), (_MMAP_THRESHOLD, largest), (_ARENA_MAX, threads))
    return all(mallopt(option, value) == 1 for option, value in options)


def value_and_grad(f: Callable, *, parts: int = 2, threads: int = 2) -> Callable:
    """Like `ng.value_and_grad(f)` for a mean over a batch's rows, computed in parts on several threads.

    `f(params, *batch)` must be a mean over the first axis of the batch's arrays, as a decoder's loss is where every
    target counts; of a sum over rows, the result is the average of the parts' sums: half of it, with two equal parts.
    The batch is cut into `parts`, their values and gradients weighted by their rows and added in order: the numbers
    depend on `parts` but not on threads. With fewer rows than parts there are as many parts as rows. The first calls
    with a batch's shapes are timed, on `threads` threads and on the calling one in turn; those that follow take the
    quicker way. ValueError if the batch's arrays differ in length or are empty; TypeError if one of them is no array
    with rows, if there are none, for keywords, and if params are Variables: a tape belongs to one thread.

    >>> loss = lambda w, x: np.mean((x @ w) ** 2)
    >>> value_and_grad(loss)(np.array([1.0, 0.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    (np.float64(5.0), array([10., 14.]))
    """
    if parts < 1 or threads < 1:
        raise ValueError(f"parts and threads must be at least 1, not {parts} and {threads}")
    both = _value_and_grad(f)
    pool = functools.cache(lambda process: ThreadPoolExecutor(max(threads - 1, 1)))  # a fork leaves threads behind
    timings: dict[tuple, dict[bool, list[float]]] = {}  # by shapes, and whether on threads: seconds

    def differentiated(params: Any, *batch: Any, **options: Any) -> tuple[Any, Any]:
        if options:
            raise TypeError(
                f"{next(iter(options))}= is given by keyword, but only params and the batch's arrays can be given, by "
                "position: bind the rest to f beforehand, with functools.partial"
            )
        if any(type(leaf) is Variable for leaf in trees.leaves(params)):
            raise TypeError("params are Variables, but a tape belongs to one thread: use ng.value_and_grad here")
        pieces = _split(f, batch, parts)
        times = timings.setdefault(tuple(a.shape for a in pieces[0]), {True: [], False: []})
        if len(times[False]) < TRIES:
            threaded = len(times[True]) == len(times[False])
        else:
            threaded = min(times[True]) < min(times[False])
        start = time.perf_counter()
        found = _mapped(lambda piece: both(params, *piece), pieces, pool(os.getpid()), threads if threaded else 1)
        if len(times[threaded]) < TRIES:
            times[threaded].append(time.perf_counter() - start)
        return _weighted_sum(found, [len(piece[0]) for piece in pieces])

    return differentiated


TRIES = 3  # calls that are timed on threads, and as many on one


def _mapped(f: Callable, pieces: list, pool: ThreadPoolExecutor, threads: int) -> list:
    """[f(piece) for piece in pieces] by so many threads, of which the calling one is the first: one less to wake up."""

    def share(first: int) -> list:
        return [f(piece) for piece in pieces[first::threads]]

    rest = range(1, min(threads, len(pieces)))
    # Each in a context of its own: debug mode and np.errstate hold in threads too.
    running = [pool.submit(contextvars.copy_context().run, share, first) for first in rest]
    try:
        shares = [share(0)]
    finally:
        wait(running)
    shares += [future.result() for future in running]
    return [shares[i % threads][i // threads] for i in range(len(pieces))]


def _weighted_sum(found: list[tuple[Any, Any]], weights: list[int]) -> tuple[Any, Any]:
    """The mean of values and of gradients, the parts' own arrays, by weight."""
    value: Any = 0
    total: list[Any] = [None] * len(trees.leaves(found[0][1]))
    for (part, gradients), weight in zip(found, weights):
        share = weight / sum(weights)
        value = value + part * share
        for i, g in enumerate(trees.leaves(gradients)):
            np.multiply(g, share, out=g)
            total[i] = g if total[i] is None else np.add(total[i], g, out=total[i])
    return value, trees.unflatten(found[0][1], total)


def all_reduce(comm: Any, tree: Any) -> Any:
    """The sum of a tree over all processes of an MPI communicator, leaf by leaf; the same on each of them.

    `comm` is one of mpi4py; all its processes call this with trees of the same structure, shapes and dtypes, which
    travel as one flat buffer, of float32 or what is wider; integers, if there are any, in buffers of their own, so
    that none is rounded. Booleans are true where any of them is. The sum of two processes has the bits that
    `value_and_grad` has for two parts; with more, MPI decides on the order of adding. TypeError for a leaf that is
    not of numbers. Source: the all-reduce of the MPI standard (MPI 4.1, section 6.9.6).
    """
    arrays = [np.asarray(leaf) for leaf in trees.leaves(tree)]
    if comm.size == 1 or not arrays:
        return tree
    kinds = {"bfc": np.float32, "i": np.int64, "u": np.uint64}
    wrong = next((i for i, a in enumerate(arrays) if a.dtype.kind not in "".join(kinds)), None)
    if wrong is not None:
        path, _ = list(trees.items(tree, "tree"))[wrong]
        raise TypeError(f"{path} is of {arrays[wrong].dtype}, but only numbers can be summed")
    total: list[Any] = [None] * len(arrays)
    for kind, narrowest in kinds.items():
        chosen = [i for i, a in enumerate(arrays) if a.dtype.kind in kind]
        if chosen:
            for i, piece in zip(chosen, _sums(comm, [arrays[i] for i in chosen], np.dtype(narrowest))):
                total[i] = piece
    return trees.unflatten(tree, total)


def _sums(comm: Any, arrays: list[np.ndarray], narrowest: np.dtype) -> list[Any]:
    """The sums over all processes of arrays that fit into one buffer."""
    dtype = functools.reduce(np.promote_types, (a.dtype for a in arrays), narrowest)
    mine = np.concatenate([a.ravel() for a in arrays], dtype=dtype)
    total = np.empty_like(mine)
    comm.Allreduce(mine, total)
    pieces = np.split(total, np.cumsum([a.size for a in arrays[:-1]]))
    return [s.astype(a.dtype, copy=False).reshape(a.shape)[()] for s, a in zip(pieces, arrays)]


def _split(f: Callable, batch: tuple, parts: int) -> list[list[np.ndarray]]:
    """The batch's arrays in parts of as many rows as possible each, views of them."""
    if not batch:
        raise TypeError("only params are given: after them come the batch's arrays, which are to be cut into parts")
    arrays = [_with_rows(f, i, argument) for i, argument in enumerate(batch, 1)]
    lengths = {len(a) for a in arrays}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "the batch's arrays must have one number of rows, at least 1, but their shapes are "
            + ", ".join(str(a.shape) for a in arrays)
        )
    rows = lengths.pop()
    parts = min(parts, rows)
    cuts = [rows * i // parts for i in range(parts + 1)]
    return [[a[start:end] for a in arrays] for start, end in itertools.pairwise(cuts)]


def _with_rows(f: Callable, i: int, argument: Any) -> np.ndarray:
    """Argument i of f as an array to be cut; TypeError if it has no rows."""
    try:
        array = np.asarray(argument)
    except ValueError:  # arrays of different shapes
        array = np.array(None)
    if array.ndim == 0 or array.dtype == object:
        name, given = argument_names(f, i + 1)[i], type(argument).__name__
        raise TypeError(
            f"{name} is a {given}: params come first, and after them only arrays with a row for each example, which "
            "are cut into parts; bind the rest to f beforehand, with functools.partial"
        )
    return array
