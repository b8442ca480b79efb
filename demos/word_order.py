"""How does a model know the order? Attention over three words, without rotary positions and with them.

    python demos/word_order.py

Attention alone sees a set: exchange two earlier words, each with its key and its value, and the last word reads the
same mixture. Turn queries and keys by their positions first, and it does not. Nothing else is needed for that:
values stay as they are.
"""

import sys

import numpy as np

import npgrad as ng

QUERY = np.array([[1.0, 0.0]])  # of the last of three words
KEYS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
VALUES = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]])
SWAPPED = [1, 0, 2]

rope = ng.RotaryEmbedding(2, max_positions=16)


def read(keys, values, turn):
    """The last word's attention weights, and the mixture of values that it reads."""
    q, k = (rope.rotate(QUERY, offset=2), rope.rotate(keys)) if turn else (QUERY, keys)
    weights = ng.softmax(q @ k.T / np.sqrt(2))
    return weights[0], (weights @ values)[0]


def score(m, n):
    """The product of (1, 0) at position m and (1, 0) at position n."""
    x = np.array([[1.0, 0.0]])
    return np.vecdot(rope.rotate(x, m), rope.rotate(x, n))[0]


def vector(x, decimals=4):
    return "[" + ", ".join(f"{round(float(v), decimals) + 0.0:.{decimals}f}" for v in x) + "]"


def the_order():
    """Print what is read in both orders; True if only rotation tells them apart."""
    told_apart = []
    for turn in (False, True):
        print(f"\n{'With' if turn else 'Without'} rotary positions")
        mixtures = []
        for name, order in (("in order", [0, 1, 2]), ("swapped", SWAPPED)):
            weights, mixture = read(KEYS[order], VALUES[order], turn)
            mixtures.append(mixture)
            print(f"  {name:<9} weights {vector(weights)}  reads {vector(mixture)}")
        told_apart.append(not np.allclose(*mixtures, rtol=0, atol=1e-12))
        print(f"  the two orders are {'told apart' if told_apart[-1] else 'the same to it'}")
    return told_apart == [False, True]


def exercises():
    print("\nExercise 1: (1, 0) at positions 2 and 3, then at 9 and 10")
    print(f"  {score(2, 3):.8f}  {score(9, 10):.8f}")
    wide = ng.RotaryEmbedding(4, max_positions=2)
    turned = wide.rotate(np.array([[1.0, 0.0, 1.0, 0.0]]), offset=1)
    print("\nExercise 2: (1, 0, 1, 0) at position 1 in width 4: the angles of its pairs, its length afterwards")
    print(f"  {vector(wide.inverse_frequencies, 8)}  {np.linalg.norm(turned):.8f}")


def distances():
    """Print scores by distance; True if distance 7 scores higher than distance 2."""
    print("\nScores by distance: a single pair turns on like the hand of a clock, so they rise again")
    scores = [score(distance, 0) for distance in range(8)]
    for distance, found in enumerate(scores):
        print(f"  {distance}  {found:6.3f}  {'#' * round(20 * (found + 1))}")
    return scores[7] > scores[2]


def main():
    good = the_order()
    exercises()
    return 0 if distances() and good else 1


if __name__ == "__main__":
    sys.exit(main())
