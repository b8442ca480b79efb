"""A laboratory for rotary position embedding: one page that turns a query and a key in the browser.

    python demos/rope_lab.py [rope_lab.html]

The page computes by itself. For a set of settings npgrad's numbers are embedded too, and the page's differ from them
by rounding only: it shows the largest difference.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np

import npgrad as ng

TEMPLATE = Path(__file__).with_name("rope_lab_template.html")
SCALINGS = {
    "none": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
TOKENS = 8  # in the matrix of scores
FARTHEST = 63  # from key to query, on either side


def contents(width):
    """A query and a key: smooth, different in every pair, and the same in JavaScript."""
    i = np.arange(width)
    return 1 + i % 3 - i / width, 1 - i % 2 + i / width


def settings():
    for width, base, layout, scaling in itertools.product((4, 8), (100.0, 10_000.0), ("adjacent", "half"), SCALINGS):
        for m, n in ((0, 0), (7, 3), (3, 40)):
            yield {"width": width, "base": base, "layout": layout, "scaling": scaling, "m": m, "n": n}


def numbers(width, base, layout, scaling, m, n):
    """What npgrad says: rotated query and key, score, their matrix, scores by key − query, an adjoint turned back."""
    rope = ng.RotaryEmbedding(width, 128, base, layout=layout, scaling=SCALINGS[scaling])
    q, k = contents(width)
    turned_q = rope.rotate(q[None], positions=[m])
    turned_k = rope.rotate(k[None], positions=[n])
    rows = np.arange(TOKENS)
    queries = rope.rotate(np.tile(q, (TOKENS, 1)), positions=m + rows)
    keys = rope.rotate(np.tile(k, (TOKENS, 1)), positions=n + rows)
    everywhere = np.arange(2 * FARTHEST + 1)
    distant = rope.rotate(np.tile(k, (len(everywhere), 1)), positions=everywhere)
    _, pullback = ng.vjp(lambda x: rope.rotate(x, positions=[m]), q[None])
    return {
        "query": turned_q[0].tolist(),
        "key": turned_k[0].tolist(),
        "score": float(np.vecdot(turned_q, turned_k)[0]),
        "matrix": (queries @ keys.T).tolist(),
        "distances": (distant @ rope.rotate(q[None], positions=[FARTHEST])[0]).tolist(),
        "adjoint": pullback(turned_k)[0][0].tolist(),
    }


def main(path="rope_lab.html"):
    known = [{"settings": s, "numbers": numbers(**s)} for s in settings()]
    page = TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/", json.dumps(known, separators=(",", ":")))
    Path(path).write_text(page, encoding="utf-8")
    print(f"written: {path}, with npgrad's numbers for {len(known)} settings")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
