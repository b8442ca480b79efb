"""A tape as Graphviz's DOT language: text that `dot -Tsvg` draws, variables as boxes, operations as ellipses."""

from __future__ import annotations

from ..tape import Tape
from .text import dimensions, entries, operation, printable


def to_dot(tape: Tape) -> str:
    r"""The tape's graph in DOT, from parents to the operations that use them.

    >>> import numpy as np
    >>> tape = Tape()
    >>> _ = np.exp(tape.variable(1.0, name='the "x"'))
    >>> print(to_dot(tape))
    digraph tape {
      node [fontname="monospace"];
      0 [label="0: the \"x\"\nvariable\n- float64", shape=box];
      1 [label="1\nexp\n- float64", shape=ellipse];
      0 -> 1;
    }
    """
    lines = ["digraph tape {", '  node [fontname="monospace"];']
    kept = entries(tape)
    for index, record in enumerate(tape.records):
        title = f"{index}: {tape.names[index]}" if index in tape.names else str(index)
        rows = (title, operation(record, kept.get(index)), f"{dimensions(record.shape)} {record.dtype}")
        shape = "box" if record.primitive is None else "ellipse"
        label = "\\n".join(map(_escaped, rows))
        lines.append(f'  {index} [label="{label}", shape={shape}];')
    for index, record in enumerate(tape.records):
        lines += [f"  {parent} -> {index};" for parent in record.parents if parent is not None]
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    text = printable(text).replace("&", "&amp;")  # Graphviz reads HTML's entities in any label
    return text.replace("\\", "\\\\").replace('"', '\\"')
