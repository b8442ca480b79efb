"""A progress bar: tqdm's where it is installed, else lines of plain text; both on stderr."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """A context that gives `advance(count)`; silent unless enabled."""

    def __init__(self, total: int, label: str, enabled: bool):
        self.total, self.label, self.done, self.tenths = total, label, 0, 0
        self.bar: Any = _tqdm(total, label) if enabled else None
        self.plain = enabled and self.bar is None

    def __enter__(self) -> Any:
        return self.bar.update if self.bar is not None else self._advance

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def _advance(self, count: int) -> None:
        self.done += count
        tenths = 10 * self.done // max(self.total, 1)
        if self.plain and tenths > self.tenths:
            self.tenths = tenths
            print(f"{self.label}: {self.done} of {self.total} coordinates", file=sys.stderr, flush=True)


def _tqdm(total: int, label: str) -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return None
    return tqdm(total=total, desc=label, unit=" coordinates", file=sys.stderr)
