"""A tape as one self-contained HTML page: its graph, and each record's rule, inputs, value and adjoint, step by step.

Python writes the data (layout, formulas, numbers) as JSON into a template; the page's script only shows it. Big
arrays are summarised by means over blocks, so that a few hundred records stay small.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

import numpy as np

from ..check.records import WatchfulTape
from ..tape import Tape
from ..variable import strip
from .text import dimensions, norm, operation, printable, saved_in, source_lines

FORMULAS = {
    "add": ("y = a + b", "ā += ȳ,  b̄ += ȳ"),
    "subtract": ("y = a − b", "ā += ȳ,  b̄ −= ȳ"),
    "multiply": ("y = a · b", "ā += ȳ · b,  b̄ += ȳ · a"),
    "divide": ("y = a / b", "ā += ȳ / b,  b̄ −= ȳ · a / b²"),
    "power": ("y = aᵇ", "ā += ȳ · b · aᵇ⁻¹,  b̄ += ȳ · y · ln a"),
    "negative": ("y = −x", "x̄ −= ȳ"),
    "exp": ("y = eˣ", "x̄ += ȳ · y"),
    "log": ("y = ln x", "x̄ += ȳ / x"),
    "sqrt": ("y = √x", "x̄ += ȳ / (2y)"),
    "square": ("y = x²", "x̄ += 2 · ȳ · x"),
    "sin": ("y = sin x", "x̄ += ȳ · cos x"),
    "cos": ("y = cos x", "x̄ −= ȳ · sin x"),
    "tanh": ("y = tanh x", "x̄ += ȳ · (1 − y²)"),
    "matmul": ("Y = A B", "Ā += Ȳ Bᵀ,  B̄ += Aᵀ Ȳ"),
    "linear": ("Y = X W", "X̄ += Ȳ Wᵀ,  W̄ += Xᵀ Ȳ"),
    "matrix_transpose": ("Y = Xᵀ", "X̄ += Ȳᵀ"),
    "transpose": ("Y = X with permuted axes", "X̄ += Ȳ with its axes permuted back"),
    "reshape": ("y = x in another shape", "x̄ += ȳ in x's shape"),
    "sum": ("y = Σ x", "x̄ += ȳ, repeated over the summed axes"),
    "mean": ("y = (1/n) Σ x", "x̄ += ȳ / n, repeated over the averaged axes"),
    "softmax": ("pᵢ = e^(sᵢ) / Σⱼ e^(sⱼ)", "s̄ += p · (p̄ − Σⱼ p̄ⱼ pⱼ)"),
    "log_softmax": ("lᵢ = sᵢ − ln Σⱼ e^(sⱼ)", "s̄ += l̄ − e^l · Σⱼ l̄ⱼ"),
    "causal_mask": ("yᵢⱼ = sᵢⱼ where the key is visible, −∞ elsewhere", "s̄ᵢⱼ += ȳᵢⱼ where visible, 0 elsewhere"),
    "rotary_pairs": (
        "(a, b) ↦ (a cos θ − b sin θ,  a sin θ + b cos θ)",
        "(ā, b̄) += (u cos θ + v sin θ,  −u sin θ + v cos θ),  (u, v) = ȳ: the inverse rotation",
    ),
    "rms_norm": ("y = w · x / √(mean x² + ε) = w · n", "x̄ += (u − n · mean(u n)) / rms,  u = ȳ w;   w̄ += Σ ȳ n"),
    "silu": ("y = x σ(x)", "x̄ += ȳ · σ(x) · (1 + x (1 − σ(x)))"),
    "swiglu": ("y = g σ(g) · u", "ū += ȳ · g σ(g),  ḡ += ȳ · u · σ(g) (1 + g (1 − σ(g)))"),
    "attention": (
        "P = softmax(mask(Q Kᵀ / √d)),  Y = P V",
        "V̄ += Pᵀ Ȳ,  S̄ = P · (P̄ − Σ P̄ P),  Q̄ += S̄ K / √d,  K̄ += S̄ᵀ Q / √d",
    ),
    "embedding": ("yₜ = E[idₜ]", "Ē[idₜ] += ȳₜ"),
    "cross_entropy": ("y = mean(ln Σⱼ e^(lⱼ) − l_target)", "l̄ += ȳ · (softmax(l) − onehot(target)) / n"),
}  # fmt: skip


def page(tape: Tape) -> str:
    """The whole page as text. ValueError if the tape has been released or is empty."""
    if not tape.records:
        raise ValueError(
            "the tape has no records to show: it was released by a gradient (keep them with retain=True) or is empty"
        )
    maps = _Maps(side=16 if len(tape.records) <= 100 else 8)
    lines = source_lines(tape)
    data = {
        "records": [_described(tape, i, lines, maps) for i in range(len(tape.records))],
        "places": places(tape),
        "maps": maps.found,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&":  # nothing in the data may end the script element
        text = text.replace(character, f"\\u{ord(character):04x}")
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/", text)


def places(tape: Tape) -> list[tuple[float, int]]:
    """Each record's column and layer: below all its parents, variables just above their first use."""
    records = tape.records
    parents = [[p for p in r.parents if p is not None] for r in records]
    layers = [0] * len(records)
    for i, above in enumerate(parents):
        layers[i] = 1 + max((layers[p] for p in above), default=-1)
    first_use: dict[int, int] = {}
    for i, above in enumerate(parents):
        for p in above:
            first_use[p] = min(first_use.get(p, layers[i]), layers[i])
    for i, above in enumerate(parents):
        if not above:
            layers[i] = max(0, first_use.get(i, 1) - 1)
    columns: dict[int, float] = {}
    taken: dict[int, set[int]] = {}
    for i in sorted(range(len(records)), key=lambda i: (layers[i], i)):
        wish = round(sum(columns[p] for p in parents[i]) / len(parents[i])) if parents[i] else 0
        free = taken.setdefault(layers[i], set())
        columns[i] = next(c for d in range(len(records) + 1) for c in (wish + d, wish - d) if c not in free)
        free.add(int(columns[i]))
    left = min(columns.values())
    return [(columns[i] - left, layers[i]) for i in range(len(records))]


class _Maps:
    """Arrays as small tables of numbers, each array once."""

    def __init__(self, side: int):
        self.side = side
        self.found: list[dict[str, Any]] = []
        self.kept: dict[int, tuple[int, Any]] = {}  # holds each array, so that its id stays its own

    def add(self, array: Any) -> int:
        array = strip(array)
        if id(array) not in self.kept:
            self.kept[id(array)] = (len(self.found), array)
            self.found.append(heat_map(np.asarray(array), self.side))
        return self.kept[id(array)][0]


def heat_map(array: np.ndarray, side: int) -> dict[str, Any]:
    """An array as at most side × side numbers, means over blocks of rows and columns where it is larger."""
    numbers = np.asarray(array, float)
    *leading, columns = numbers.shape or (1,)
    rows = numbers.reshape(math.prod(leading), columns)
    finite = numbers[np.isfinite(numbers)]
    edges = [np.unique(np.linspace(0, n, min(n, side) + 1).astype(int)) for n in rows.shape]
    if rows.size:
        with np.errstate(invalid="ignore"):
            blocks = np.add.reduceat(np.add.reduceat(rows, edges[0][:-1], 0), edges[1][:-1], 1)
        blocks = blocks / np.outer(np.diff(edges[0]), np.diff(edges[1]))
    else:
        blocks = rows
    return {
        "shape": dimensions(array.shape),
        "dtype": str(array.dtype),
        "range": [float(f"{x:.6g}") for x in (finite.min(), finite.max())] if finite.size else None,
        "edges": [e.tolist() for e in edges] if blocks.shape != rows.shape else None,
        "numbers": [[_number(x) for x in row] for row in blocks.tolist()],
    }


def _number(x: float) -> Any:
    return float(f"{x:.6g}") if np.isfinite(x) else str(x)


def _described(tape: Tape, index: int, lines: dict[int, str], maps: _Maps) -> dict[str, Any]:
    record = tape.records[index]
    neutral = (f"y = {record.primitive}(…)", "each input's adjoint += its pullback(ȳ)")
    forward, backward = FORMULAS.get(str(record.primitive), neutral)
    if record.primitive is None:
        forward, backward = "an input of the tape", "its adjoint is the gradient"
    values = tape.values if isinstance(tape, WatchfulTape) else None
    return {
        "name": printable(tape.names.get(index, "")),
        "operation": operation(record),
        "parents": [p for p in record.parents if p is not None],
        "shape": dimensions(record.shape),
        "dtype": str(record.dtype),
        "line": lines.get(index, ""),
        "forward": forward,
        "backward": backward,
        "norm": norm(tape.adjoints.get(index)),
        "value": None if values is None else maps.add(values[index]),
        "adjoint": maps.add(tape.adjoints[index]) if index in tape.adjoints else None,
        "saves": [[name, maps.add(array), strip(array).nbytes] for name, array in saved_in(record)],
    }
