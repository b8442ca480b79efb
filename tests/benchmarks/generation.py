"""Tokens per second of generation: with a cache, and by computing everything again for each token.

    python tests/benchmarks/generation.py

For each length of context: the median time of one more token with a cache of that many, of one more token by a full
pass, and their ratio, measured in turns. Both must give the same logits.
"""

import statistics
import sys
import time

import numpy as np

from npgrad import decoder

CONFIG = decoder.Config(
    vocab_size=512, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads=4, max_position_embeddings=2048,
)  # fmt: skip
ROUNDS = 9


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def main():
    params = decoder.init(CONFIG, seed=0)
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (1, 2048))
    print(f"{'context':>8}{'cached ms':>11}{'tokens/s':>10}{'full ms':>10}{'ratio':>8}")
    for context in (64, 128, 256, 512, 1024, 2048):
        cache = decoder.Cache(CONFIG)
        decoder.forward(CONFIG, params, tokens[:, : context - 1], cache=cache)

        def step(context=context, cache=cache):
            cache.length = context - 1
            return decoder.forward(CONFIG, params, tokens[:, context - 1 : context], cache=cache)

        def whole(context=context):
            return decoder.forward(CONFIG, params, tokens[:, :context])

        np.testing.assert_allclose(step()[0, 0], whole()[0, -1], atol=1e-4)
        pairs = []
        for _ in range(ROUNDS):
            full = seconds(whole)
            pairs.append((statistics.median(seconds(step) for _ in range(9)), full))
        cached, full = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"{context:8}{1e3 * cached:11.2f}{1 / cached:10.0f}{1e3 * full:10.1f}{ratio:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
