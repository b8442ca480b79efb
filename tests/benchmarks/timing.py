"""Alternating rounds, medians and a table: what every benchmark of this folder shares."""

import gc
import importlib.util
import statistics
import time
from collections.abc import Callable

import numpy as np


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def agree(found, expected, tolerance: float, what: str) -> None:
    """Stop unless each array of the dict agrees with the expected one, relative to its norm."""
    assert found.keys() == expected.keys(), (what, found.keys() ^ expected.keys())
    for name, value in expected.items():
        error = np.linalg.norm(np.asarray(found[name], float) - value) / np.linalg.norm(value)
        assert error < tolerance, f"{what} disagrees at {name} by {error:.1e}"


TURN = 0.05
"""Seconds of a system's turn, if a call takes no longer."""


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(title: str, systems: dict[str, Callable[[], object]], seconds: float = 4.0, least: int = 5) -> None:
    """Time each system in turn, round after round, and print medians beside their ratio to the first, the floor.

    In its turn a quick system runs several times, as a training loop would run it, and the first time doesn't count:
    it finds the caches full of what the others left there.
    """
    for run in systems.values():
        run()
    gc.freeze()  # or each would pay for looking through the objects of all the others' packages
    repeats = {name: int(TURN / _timed(run)) for name, run in systems.items()}
    times: dict[str, list[float]] = {name: [] for name in systems}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, run in systems.items():
            found = [_timed(run) for _ in range(1 + repeats[name])]
            times[name] += found[1:] or found
    medians = {name: statistics.median(t) for name, t in times.items()}
    floor = next(iter(medians.values()))
    print(f"\n{title:58}{'ms':>10}{'ratio':>8}")
    for name, median in medians.items():
        print(f"  {name:56}{median * 1e3:10.3f}{median / floor:8.2f}", flush=True)
