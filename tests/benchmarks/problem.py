"""The decoder that all systems train: sizes, the same weights for each under the names each uses, and one batch."""

import numpy as np

from npgrad import decoder

SIZES = {
    "tiny": {"batch": 8, "tokens": 32, "width": 64, "layers": 2, "heads": 4, "vocabulary": 65, "hidden": 192},
    "small": {"batch": 16, "tokens": 64, "width": 128, "layers": 4, "heads": 4, "vocabulary": 256, "hidden": 352},
    "medium": {"batch": 8, "tokens": 256, "width": 256, "layers": 4, "heads": 8, "vocabulary": 1024, "hidden": 704},
}
ADAMW = {"rate": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "decay": 0.1}
EPS = 1e-5  # of the norms


def config(size):
    return decoder.Config(
        vocab_size=size["vocabulary"],
        hidden_size=size["width"],
        intermediate_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        max_position_embeddings=size["tokens"],
        rms_norm_eps=EPS,
    )


def batch(size):
    tokens = np.random.default_rng(1).integers(0, size["vocabulary"], (size["batch"], size["tokens"] + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def parameters(size):
    """As npgrad.decoder has them, with norms that aren't all ones."""
    rng = np.random.default_rng(2)
    params = decoder.init(config(size), seed=0)
    for block in (params, *params["blocks"]):
        for name in block.keys() & {"norm", "attention_norm", "feed_forward_norm"}:
            block[name] += rng.normal(0, 0.1, block[name].shape).astype(np.float32)
    return params


NAMES = {
    "attention_norm": "n1", "wq": "wq", "wk": "wk", "wv": "wv", "wo": "wo", "feed_forward_norm": "n2", "gate": "wg",
    "up": "wu", "down": "wd",
}  # fmt: skip


def flat(params):
    """A dict of copies, with the short names of the other systems: emb, l0.n1, l0.wq, …, nf, head."""
    found = {"emb": params["embedding"], "nf": params["norm"], "head": params["head"]}
    for i, block in enumerate(params["blocks"]):
        found |= {f"l{i}.{short}": block[name] for name, short in NAMES.items()}
    return {name: np.array(array) for name, array in found.items()}


def rotary_tables(size, dtype=np.float32):
    width = size["width"] // size["heads"]
    angles = np.outer(np.arange(size["tokens"]), 1e4 ** (-np.arange(0, width, 2) / width))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
