"""The decoder written from scratch: every coordinate of its gradient, and that of npgrad.decoder beside it."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import npgrad as ng
from npgrad import decoder

SCRIPT = Path(__file__).parents[2] / "demos" / "decoder_from_scratch.py"
CONFIGS = {"untied": {}, "tied": {"tie_word_embeddings": True}, "one key/value head": {"num_key_value_heads": 1}}


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("decoder_from_scratch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(**changes):
    config = decoder.Config(
        vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=8, rms_norm_eps=1e-5, **{"num_key_value_heads": 2, **changes},
    )  # fmt: skip
    rng = np.random.default_rng(0)
    params = ng.tree.map(lambda p: p + 0.1 * rng.normal(size=p.shape), decoder.init(config, 0, np.float64))
    return config, params, rng.integers(0, 11, (2, 6))


def test_it_is_short():
    assert len(SCRIPT.read_text().splitlines()) <= 120


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_logits_and_gradient_equal_the_packages(demo, changes):
    config, params, windows = model(**changes)
    tensors = decoder.to_llama(config, params)
    expected = decoder.forward(config, params, windows)
    np.testing.assert_allclose(demo.logits(config, tensors, windows), expected, rtol=1e-12, atol=1e-12)
    assert demo.compare(config, params, windows) < 1e-12


def test_every_coordinate_of_its_gradient(demo):
    config, params, windows = model()
    tensors = decoder.to_llama(config, params)
    report = ng.check_grads(lambda t: demo.loss(config, t, windows[:1, :4]), tensors)
    assert report.coordinates == sum(t.size for t in tensors.values())
    assert report.worst.error < 1e-9


def test_it_checks_compares_and_trains(demo, capsys):
    assert demo.main(steps=100) == 0
    printed = capsys.readouterr().out
    assert "pass" in printed
    assert float(re.search(r"against npgrad.decoder: (\S+)", printed)[1]) < 1e-12
    first, *_, last = (float(value) for value in re.findall(r"loss (\d\.\d+)", printed))
    assert last < first / 3
