"""One attention head on a tape: printed, swept, checked, and saved as a page to step through.

    python demos/tape_walk.py [tape.html]

A `WatchfulTape` keeps what the page shows and an ordinary tape lets go: values, arguments, source lines. The page opens
from disk in any browser: arrow keys go forward through the records and back through the adjoints.
"""

import sys

import numpy as np

import npgrad as ng

WIDTH, TOKENS = 4, 3
rope = ng.RotaryEmbedding(WIDTH, TOKENS)


def head(params, x):
    q, k, v = (x @ params[name] for name in ("wq", "wk", "wv"))
    q, k = rope.rotate(q), rope.rotate(k)
    weights = ng.softmax(ng.causal_mask(q @ k.mT / np.sqrt(WIDTH)))
    return np.sum(np.tanh(weights @ v))


def walk():
    """The tape of one head after its sweep, with the parameters and x that it was recorded with."""
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=(WIDTH, WIDTH)).round(2) for name in ("wq", "wk", "wv")}
    x = rng.normal(size=(TOKENS, WIDTH)).round(2)
    tape = ng.WatchfulTape()
    watched = {name: tape.variable(w, name=name) for name, w in params.items()}
    output = head(watched, tape.variable(x, name="x"))
    tape.gradient(output, list(watched.values()), retain=True)
    return tape, params, x


def main(path="tape.html"):
    tape, params, x = walk()
    print(tape.table())
    print("\nbackwards\n")
    print(tape.backward_listing())
    print()
    print(ng.check_grads(head, params, x))
    tape.save_page(path)
    print(f"\nwritten: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
