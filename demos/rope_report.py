"""Rotary position embedding by numbers: what each step makes of small vectors, what is refused, and the way back.

    python demos/rope_report.py

Everything is small enough to follow by hand: width 4, so two pairs of features, base 100, positions 0 to 2, and a query
and a key that are (1, 0, 1, 0) at each of them. The report is the same, byte for byte, at every run. The exit code
is 1 if a check in it fails.
"""

import math
import sys

import numpy as np

import npgrad as ng

WIDTH, BASE, SHIFT, CAPACITY = 4, 100.0, 3, 6
SHIFT_TOLERANCE, STEP, GRADIENT_TOLERANCE = 1e-12, 1e-6, 4e-6
QUERIES = KEYS = np.tile([1.0, 0.0, 1.0, 0.0], (3, 1))
QUERY_ADJOINT = np.array([[1.0, -0.5, 0.25, 0.75], [-0.3, 0.8, 1.2, -0.4], [0.6, 0.1, -0.7, 0.9]])
KEY_ADJOINT = np.array([[-0.2, 0.4, 0.9, -0.6], [0.5, 1.1, -0.8, 0.3], [1.0, -0.9, 0.2, 0.7]])

rope = ng.RotaryEmbedding(WIDTH, CAPACITY, BASE)


def number(x):
    """Six decimals, and no minus before a zero."""
    return f"{round(float(x), 6) + 0.0:9.6f}"


def row(values):
    return "  ".join(number(x) for x in values)


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}")


def rotations():
    heading("Frequencies of the pairs: base^(-2k/width)")
    print(row(rope.inverse_frequencies))
    heading("Pairs before and after their rotation")
    print("position  pair   frequency      angle     before                after")
    turned = rope.rotate(QUERIES)
    for position in range(3):
        for pair, frequency in enumerate(rope.inverse_frequencies):
            features = slice(2 * pair, 2 * pair + 2)
            before, after = QUERIES[position, features], turned[position, features]
            print(f"{position:8}  {pair:4}   {row([frequency, position * frequency, *before, *after])}")


def dot_products():
    """Products of rotated queries and keys, before and after every position moves by the same number."""
    matrices = []
    for offset in (0, SHIFT):
        heading(f"Dot products of rotated queries (rows) and keys (columns), positions {offset} to {offset + 2}")
        matrices.append(rope.rotate(QUERIES, offset) @ rope.rotate(KEYS, offset).T)
        print("\n".join(row(line) for line in matrices[-1]))
    change = np.abs(matrices[0] - matrices[1]).max()
    print(f"largest change: {change:.1e} (tolerance {SHIFT_TOLERANCE:.0e})")
    heading("Lengths of the queries: as they are, rotated, rotated three positions on")
    for x in (QUERIES, rope.rotate(QUERIES), rope.rotate(QUERIES, SHIFT)):
        print(row(np.linalg.norm(x, axis=-1)))
    return change <= SHIFT_TOLERANCE


def shapes():
    """Leading axes are lanes that don't know of each other; no axis needs to have anything in it."""
    heading("Ranks 2 to 4: every lane equals the rotation of rank 2")
    equal = []
    for lead in ((), (2,), (2, 2)):
        out = rope.rotate(np.broadcast_to(QUERIES, (*lead, 3, WIDTH)), SHIFT)
        equal.append(bool((out == rope.rotate(QUERIES, SHIFT)).all()))
        print(f"rank {out.ndim}: shape {out.shape}, {'equal' if equal[-1] else 'different'}")
    heading("Empty axes")
    for shape, offset in (((0, WIDTH), 0), ((2, 0, WIDTH), CAPACITY), ((0, 3, WIDTH), SHIFT)):
        print(f"shape {shape} at offset {offset}: gives shape {rope.rotate(np.zeros(shape), offset).shape}")
    return all(equal)


def refusals():
    heading("Refused, before anything is allocated")
    tables = {
        "width 0": (0, 4, BASE), "width 3": (3, 4, BASE), "no positions": (4, 0, BASE), "base 0": (4, 4, 0.0),
        "base -1": (4, 4, -1.0), "base nan": (4, 4, math.nan), "base inf": (4, 4, math.inf),
        "width 8, 2^63 positions": (8, 2**63, BASE), "width 4, 2^60 positions": (4, 2**60, BASE),
        "width 64, base 1e-320": (64, 5, 1e-320), "width 400, base 1e-308, 10^12 positions": (400, 10**12, 1e-308),
    }  # fmt: skip
    calls = {
        "input of rank 1": ((WIDTH,), 0), "input of width 6": ((3, 6), 0), "positions 4 to 6 of 6": ((3, WIDTH), 4),
        "an empty interval at 7 of 6": ((0, WIDTH), 7), "offset 2^64 - 1": ((3, WIDTH), 2**64 - 1),
    }  # fmt: skip
    attempts = [(what, ng.RotaryEmbedding, args) for what, args in tables.items()]
    attempts += [(what, rope.rotate, (np.zeros(shape), offset)) for what, (shape, offset) in calls.items()]
    refused = []
    for what, call, args in attempts:
        try:
            call(*args)
            refused.append("accepted")
        except ng.RotaryError as error:
            where = "" if error.position is None else f" at position {error.position}, pair {error.pair}"
            refused.append(error.code + where)
        print(f"{what:<42}{refused[-1]}")
    return "accepted" not in refused


def loss(queries, keys):
    """A number whose derivatives by the rotated queries and keys are the two adjoints above."""
    return np.sum(QUERY_ADJOINT * rope.rotate(queries)) + np.sum(KEY_ADJOINT * rope.rotate(keys))


def reverse_mode():
    gradients = ng.grad(loss, argnums=(0, 1))(QUERIES, KEYS)
    for name, adjoint, found in zip("QK", (QUERY_ADJOINT, KEY_ADJOINT), gradients):
        heading(f"Reverse mode, {name}: adjoint of the rotated rows, then of the rows themselves")
        for position in range(3):
            print(f"{position}   {row(adjoint[position])}   {row(found[position])}")
    heading(f"Central differences, step {STEP:.0e}")
    largest = 0.0
    for argument, name in enumerate("QK"):
        errors = []
        for index in np.ndindex(3, WIDTH):
            ends = []
            for sign in (1, -1):
                inputs = [QUERIES.copy(), KEYS.copy()]
                inputs[argument][index] += sign * STEP
                ends.append(loss(*inputs))
            errors.append(abs((ends[0] - ends[1]) / (2 * STEP) - gradients[argument][index]))
        print(f"{name}: {len(errors)} coordinates, largest error {max(errors):.1e}")
        largest = max(largest, *errors)
    print(f"largest error of all: {largest:.1e} (tolerance {GRADIENT_TOLERANCE:.0e})")
    return largest <= GRADIENT_TOLERANCE


def main():
    print("Rotary position embedding, width 4, base 100")
    rotations()
    passed = [dot_products(), shapes(), refusals(), reverse_mode()]
    print(f"\n{'every check passed' if all(passed) else 'A CHECK FAILED'}")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
