"""Looking at a tape: `print(tape)`, `tape.table()`, `tape.backward_listing()`, `tape.to_dot()`, `tape.save_page(path)`.

The engine knows nothing of this room: these methods are attached from here, when one is first asked for. (Type checkers
don't see those; they do see the functions, `show.table(tape)`.) What an ordinary tape lets go, a `WatchfulTape` keeps:
values for the page, all of an operation's parameters, source lines. It costs the memory of every value.
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

    A WatchfulTape's page shows values; after `gradient(..., retain=True)` adjoints too. Arrays of any size are
    summarised: 300 records of a decoder take 1 MB. ValueError for a tape that is released or empty.

    >>> import numpy as np
    >>> tape = WatchfulTape()
    >>> x = tape.variable([1.0, 2.0], name="x")
    >>> _ = tape.gradient(np.sum(np.exp(x)), [x], retain=True)
    >>> save_page(tape, os.devnull)  # "tape.html", to open in a browser
    """
    from .page import page  # not at the top: printing a tape needs no template

    text = page(tape)  # before the file is emptied: a tape may have nothing to show
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _printed(tape: Tape) -> str:
    columns, lines = terminal_size()
    return table(tape, rows=lines, width=columns)


def attach() -> None:
    """Give Tape and Variable these methods."""
    methods: dict[str, Any] = {
        "__str__": _printed, "table": table, "backward_listing": backward_listing, "to_dot": to_dot,
        "save_page": save_page,
    }  # fmt: skip
    for name, method in methods.items():
        setattr(Tape, name, method)
    attach_tables()
