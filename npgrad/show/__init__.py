"""Looking at a tape: `print(tape)` lists its records, `tape.table(rows=None)` all of them."""

from ..tape import Tape
from .text import table, terminal_rows

Tape.table = table  # type: ignore[attr-defined]
Tape.__str__ = lambda tape: table(tape, rows=terminal_rows())  # type: ignore[method-assign, arg-type]
