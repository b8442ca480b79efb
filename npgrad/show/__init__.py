"""Looking at a tape: `print(tape)`, `tape.table()`, `tape.backward_listing()`, `tape.to_dot()`, `tape.save_page(path)`.

The engine knows nothing of this room: its methods are attached here. What needs values, the page and the source
lines, takes a `WatchfulTape`, which keeps what an ordinary tape lets go.
"""

from __future__ import annotations

import os
from typing import Any

from ..check.records import WatchfulTape
from ..tape import Tape
from .dot import to_dot
from .notebook import attach_tables
from .text import backward_listing, table, terminal_size

__all__ = ["WatchfulTape", "backward_listing", "save_page", "table", "to_dot"]


def save_page(tape: Tape, path: str | os.PathLike) -> None:
    """Write the tape as one self-contained HTML page to step through, forwards and backwards.

    On a WatchfulTape it shows values; after `gradient(..., retain=True)` adjoints. ValueError for a released tape.
    """
    from .page import page  # not at the top: printing a tape needs no template

    with open(path, "w", encoding="utf-8") as file:
        file.write(page(tape))


def _printed(tape: Tape) -> str:
    columns, lines = terminal_size()
    return table(tape, rows=lines, width=columns)


_methods: dict[str, Any] = {
    "table": table, "backward_listing": backward_listing, "to_dot": to_dot, "save_page": save_page,
    "__str__": _printed,
}  # fmt: skip
for _name, _method in _methods.items():
    setattr(Tape, _name, _method)
attach_tables()
