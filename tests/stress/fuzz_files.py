"""Damage headers of .safetensors files and configurations at random: each is read, or refused with a ValueError.

    python tests/stress/fuzz_files.py --headers 100000 --configs 20000

Mutations work on bytes and on the JSON's structure, with the values that break parsers. No case may raise anything but
ValueError, take over a second, or raise the process's peak of memory by 200 MB.
"""

import argparse
import copy
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from npgrad import decoder
from npgrad.safetensors_file import METADATA, read_header, read_metadata, read_tensor, write_tensors

NASTY = [
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 255, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**9, -(10**9),
    10**30, 10**400, 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), "", "F32", "F64", "BF16", "I64",
    "\x00", "ä\ud800", "llama", "llama3", "yarn", "linear", "longrope", "dynamic", "silu", "8", [], {}, [[]], [0], [1,
    2], [10**9] * 3, [None], [0, 10**18], {"a": {}}, {"rope_type": "yarn"}, {"rope_type": []}, {"rope_type": "linear",
    "factor": -1}, "x" * 1000, [1] * 100, [0] * 70,
]  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 9, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "attention_bias": False, "hidden_act": "silu", "eos_token_id": [1, 2], "bos_token_id": 0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 32},
}  # fmt: skip
SCALINGS = [
    {"rope_type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}, {"type": "linear", "factor": 4},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
    {"rope_type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 3.0], "factor": 4.0,
     "original_max_position_embeddings": 16}, CONFIG["rope_scaling"],
]  # fmt: skip


def mutated(rng, tree):
    """The tree with one place changed: a value replaced, removed, doubled, or a key renamed."""
    nodes = [tree]
    for node in nodes:
        nodes += [v for v in (node.values() if isinstance(node, dict) else node) if isinstance(v, (dict, list)) and v]
    node = rng.choice(nodes)
    key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
    action = rng.randrange(5)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[rng.choice([key + "x", METADATA, "", "dtype", "shape"])] = node.pop(key)
    elif action == 2 and isinstance(node[key], (int, float)) and abs(node[key]) < 10**300:
        node[key] = rng.choice([node[key] + 1, node[key] - 1, -node[key], node[key] * 10**9, float(node[key])])
    else:
        node[key] = copy.deepcopy(rng.choice(NASTY))


def damaged_bytes(rng, raw):
    raw = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(raw))
        action = rng.randrange(4)
        if action == 0:
            raw[place] = rng.randrange(256)
        elif action == 1:
            raw[place : place + rng.randint(1, 9)] = b""
        elif action == 2:
            raw[place:place] = rng.choice(
                [b'"', b"{", b"}", b"[", b"9" * 30, b"9" * 5000, b"\x00", b"\\u", b"\xff", b","]
            )
        else:
            raw[place : place + 8] = rng.choice([0, 1, 2**31, 2**63, 2**64 - 1]).to_bytes(8, "little")
        if not raw:
            return b""
    return bytes(raw)


def damaged_file(rng, raw, header):
    if rng.random() < 0.5:
        return damaged_bytes(rng, raw)
    length = int.from_bytes(raw[:8], "little")
    header = copy.deepcopy(header)
    for _ in range(rng.randint(1, 3)):
        if header:
            mutated(rng, header)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]


def read_file(path):
    read_metadata(path)
    return sum(read_tensor(entry).nbytes for entry in read_header(path).values())


def damaged_config(rng):
    config = {**copy.deepcopy(CONFIG), "rope_scaling": copy.deepcopy(rng.choice(SCALINGS))}
    if rng.random() < 0.3:
        config["rope_parameters"] = {**config.pop("rope_scaling"), "rope_theta": 500.0}
    for _ in range(rng.randint(1, 3)):
        mutated(rng, config)
    return config


class Tally:
    """Counts, and the worst time, of cases that were read and that were refused."""

    def __init__(self):
        self.read = self.refused = 0
        self.slowest = 0.0

    def run(self, function, argument, shown):
        began = time.perf_counter()
        try:
            function(argument)
            self.read += 1
        except ValueError:
            self.refused += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} for {shown!r}") from error
        self.slowest = max(self.slowest, time.perf_counter() - began)

    def __str__(self):
        return f"{self.read} read, {self.refused} refused, slowest {self.slowest:.3f} s"


def fuzz_headers(count, seed, folder):
    rng, tally, path = random.Random(seed), Tally(), Path(folder) / "x.safetensors"
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2), "n": np.ones((0, 3), np.float16)}
    write_tensors(path, {**arrays, "i": np.arange(4)}, {"format": "pt"})
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    for _ in range(count):
        found = damaged_file(rng, raw, header)
        path.write_bytes(found)
        tally.run(read_file, path, found)
    return tally


def fuzz_configs(count, seed, folder):
    """Configurations, alone and as the config.json of a folder with the weights of the undamaged one."""
    rng, tally, folder = random.Random(seed), Tally(), Path(folder)
    config = decoder.Config.from_dict(CONFIG)
    decoder.save(folder, config, decoder.init(config, 0))
    for i in range(count):
        found = damaged_config(rng)
        if i % 4:
            tally.run(decoder.Config.from_dict, found, found)
        else:
            (folder / "config.json").write_text(json.dumps(found))
            tally.run(decoder.load, folder, found)
    return tally


def main():
    parser = argparse.ArgumentParser(description="Read damaged files and configurations; see the top of the file.")
    parser.add_argument("--headers", type=int, default=100_000)
    parser.add_argument("--configs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        tallies = [fuzz_headers(options.headers, options.seed, folder)]
        print(f"headers: {tallies[0]}", flush=True)
        tallies.append(fuzz_configs(options.configs, options.seed, folder))
        print(f"configs: {tallies[1]}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"peak memory grew by {grown:.0f} MB")
    return 0 if max(tally.slowest for tally in tallies) < 1 and grown < 200 else 1


if __name__ == "__main__":
    sys.exit(main())
