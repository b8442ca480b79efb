"""Write your own decoder: a hundred lines of plain NumPy over npgrad, on a checkpoint's own tensors.

    python demos/decoder_from_scratch.py

The parameters are the tensors of a Llama checkpoint as published, by name; so queries and keys have the half layout of
rotary pairs. Everything that learns is an argument, everything else is NumPy. The demo checks its gradient against
central differences, then against that of npgrad.decoder, which has adjacent pairs and fused primitives, and trains.
"""

import sys

import numpy as np

import npgrad as ng
from npgrad import decoder, optim

CONFIG = decoder.Config(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=16,
)  # fmt: skip


def rms_norm(x, weight, eps):
    """Each token's features divided by their root mean square, so that only their direction counts."""
    return weight * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rotate(config, x):
    """Turn pairs (k, k + d/2) of features by an angle proportional to the position: distances become visible."""
    rope = ng.RotaryEmbedding(config.head_dim, config.max_position_embeddings, config.rope_theta, layout="half")
    return rope.rotate(x)


def attention(config, tensors, x):
    """Each token takes a weighted mean of the values of the tokens up to itself."""

    def heads(name, count):  # (batch, tokens, hidden) -> (batch, heads, tokens, head width)
        projected = x @ tensors[f"self_attn.{name}_proj.weight"].T
        return projected.reshape(*x.shape[:2], count, config.head_dim).swapaxes(1, 2)

    shared = config.num_key_value_heads
    q = rotate(config, heads("q", config.num_attention_heads))
    k, v = rotate(config, heads("k", shared)), heads("v", shared)
    group = config.num_attention_heads // shared  # so many query heads read each key/value head
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    weights = ng.softmax(ng.causal_mask(q @ k.mT / np.sqrt(config.head_dim)))
    mixed = (weights @ v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    return mixed @ tensors["self_attn.o_proj.weight"].T


def feed_forward(tensors, x):
    """Two matrices in, multiplied through a smooth gate, and one out; each token works alone."""
    gate, up = x @ tensors["mlp.gate_proj.weight"].T, x @ tensors["mlp.up_proj.weight"].T
    return gate / (1 + np.exp(-gate)) * up @ tensors["mlp.down_proj.weight"].T


def logits(config, tensors, tokens):
    """(batch, tokens) of integers -> (batch, tokens, vocabulary)."""
    x = tensors["model.embed_tokens.weight"][tokens]
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        block = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        x = x + attention(config, block, rms_norm(x, block["input_layernorm.weight"], config.rms_norm_eps))
        x = x + feed_forward(block, rms_norm(x, block["post_attention_layernorm.weight"], config.rms_norm_eps))
    head = tensors["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    return rms_norm(x, tensors["model.norm.weight"], config.rms_norm_eps) @ head.T


def loss(config, tensors, windows):
    """Mean cross-entropy of each token of the windows (batch, tokens + 1) given those before it."""
    log_p = ng.log_softmax(logits(config, tensors, windows[:, :-1]))
    return -np.mean(np.take_along_axis(log_p, windows[:, 1:, None], axis=-1))


def compare(config, params, windows):
    """The largest difference between this gradient and npgrad.decoder's, relative to each tensor's largest entry."""
    here = ng.grad(loss, 1)(config, decoder.to_llama(config, params), windows)
    there = decoder.to_llama(config, ng.grad(decoder.loss, 1)(config, params, windows[:, :-1], windows[:, 1:]))
    return max(np.abs(here[name] - g).max() / np.abs(g).max() for name, g in there.items())


def main(steps=150):
    rng = np.random.default_rng(0)
    starts, strides = rng.integers(0, 32, (2, 64, 1)) | [[[0]], [[1]]]
    windows = (starts + strides * np.arange(13)) % 32  # what comes next follows from two tokens, not from one
    params = decoder.init(CONFIG, seed=0, dtype=np.float64)

    def loss_of_a_sentence(tensors):
        return loss(CONFIG, tensors, windows[:1, :5])

    report = ng.check_grads(loss_of_a_sentence, decoder.to_llama(CONFIG, params), directions=8)
    print(f"{report}\n\nagainst npgrad.decoder: {compare(CONFIG, params, windows):.1e}\n")

    tensors = {name: t.astype(np.float32) for name, t in decoder.to_llama(CONFIG, params).items()}
    adam = optim.AdamW(tensors, 1e-2)
    for step in range(steps + 1):
        value, gradient = ng.value_and_grad(loss, 1)(CONFIG, tensors, windows)
        if step % 50 == 0:
            print(f"step {step:4}  loss {value:.4f}")
        tensors = adam.update(gradient)
    return 0


if __name__ == "__main__":
    sys.exit(main())
