"""npgrad's decoder beside transformers: checkpoints written here opened there, and the other way round.

    python tests/benchmarks/transformers_agreement.py      with torch and transformers installed

For each configuration: the largest difference of logits in float32 and float64, of every parameter's gradient in
float64 (relative to the tensor's largest), and whether 20 greedy tokens are equal. Then a checkpoint that transformers
writes in bfloat16 and several files. The exit status is 1 if something differs by more than it may.
"""

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import transformers

import npgrad as ng
from npgrad import decoder

SMALL = {
    "vocab_size": 61, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
CASES = {
    "plain": {},
    "tied, llama3 scaling": {"tie_word_embeddings": True, "rope_scaling": LLAMA3, "rope_theta": 500_000.0},
    "yarn scaling": {"rope_scaling": YARN},
    "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "dynamic scaling": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "biases, wide heads": {"attention_bias": True, "head_dim": 16},
    "one key/value head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-5},
    "Qwen2": {"model_type": "qwen2"},
    "Qwen2, tied": {"model_type": "qwen2", "tie_word_embeddings": True},
    "Mistral": {"model_type": "mistral"},
    "Mistral, window of 7": {"model_type": "mistral", "sliding_window": 7},
}
TOKENS = np.random.default_rng(0).integers(0, SMALL["vocab_size"], (2, 24))


def opened(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")


@contextmanager
def wholly_in_float64():
    """transformers computes norms, angles and softmax in float32 whatever the model's dtype, unless it is deceived."""
    types = mock.patch.multiple(torch, float32=torch.float64, float=torch.float64)
    with types, mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def logits_in_float64(folder):
    model = opened(folder, torch.float64)
    theta = decoder.load(folder)[0].rotary(TOKENS.shape[1]).inverse_frequencies
    np.testing.assert_allclose(model.model.rotary_emb.inv_freq.numpy(), theta, rtol=1e-6)
    model.model.rotary_emb.inv_freq = torch.tensor(theta)
    with wholly_in_float64():
        return model, model(torch.tensor(TOKENS)).logits


def compare(folder, config, params):
    """Largest differences of logits in float32 and float64 and of gradients, and whether greedy tokens are equal."""
    model = opened(folder, torch.float32)
    there = model(torch.tensor(TOKENS)).logits
    single = np.abs(decoder.forward(config, params, TOKENS) - there.detach().numpy()).max()
    prompt = TOKENS[0, :5]
    tokens = model.generate(torch.tensor(prompt[None]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    here = list(decoder.generate(config, params, prompt, max_new_tokens=20))
    model, there = logits_in_float64(folder)
    _, wide = decoder.load(folder, np.float64)
    double = np.abs(decoder.forward(config, wide, TOKENS) - there.detach().numpy()).max()
    torch.nn.functional.cross_entropy(there[:, :-1].reshape(-1, config.vocab_size),
                                      torch.tensor(TOKENS[:, 1:].reshape(-1))).backward()  # fmt: skip
    gradients = ng.grad(decoder.loss, 1)(config, wide, TOKENS[:, :-1], TOKENS[:, 1:])
    expected = {name: p.grad.numpy() for name, p in model.named_parameters()}
    found = decoder.to_llama(config, gradients)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    worst = max(np.abs(found[n] - g).max() / np.abs(g).max() for n, g in expected.items())
    return single, double, worst, here == tokens[0, 5:].tolist()


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}\n")
    print(f"{'':24}{'float32':>10}{'float64':>10}{'gradient':>10}  greedy tokens")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in CASES.items():
            config = decoder.Config(**{**SMALL, **changes})
            params = decoder.init(config, seed=1)
            rng = np.random.default_rng(2)  # norms and biases too should matter
            params = ng.tree.map(lambda p: p + 0.1 * rng.normal(size=p.shape).astype(p.dtype), params)  # noqa: B023
            decoder.save(folder, config, params)
            single, double, gradient, equal = compare(folder, config, params)
            print(f"{name:24}{single:10.1e}{double:10.1e}{gradient:10.1e}  {'equal' if equal else 'DIFFERENT'}")
            good = good and single < 1e-5 and double < 1e-10 and gradient < 1e-9 and equal
            model = opened(folder, torch.bfloat16)
            shards = Path(folder) / "shards" / name
            model.save_pretrained(shards, max_shard_size="30KB")
            _, half = decoder.load(shards, np.float64)
            expected = logits_in_float64(shards)[1].detach().numpy()
            difference = np.abs(decoder.forward(config, half, TOKENS) - expected).max()
            files = len(list(shards.glob("*.safetensors")))
            print(f"{'':24}{'':10}{difference:10.1e}  its bfloat16 checkpoint of {files} files, read here")
            good = good and difference < 1e-10 and files > 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
