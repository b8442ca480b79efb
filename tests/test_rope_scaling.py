"""Scaling: every method's frequencies and attention factor, read from a checkpoint's keys in either spelling."""

import copy
import json
import math

import numpy as np
import pytest
from oracle import DATA, reference

import npgrad as ng
from npgrad.rope import frequencies

CASES = reference("rope_scaling")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}


def embedding(case, **options):
    """A table for the case's sequence length: what decides between short and long is how far the table reaches."""
    p = case["params"]
    scaling = {**p["rope_parameters"], "max_position_embeddings": p["max_position_embeddings"]}
    return ng.RotaryEmbedding(p["head_dim"], p["seq_len"] or 1, scaling=scaling, **options)


@pytest.mark.parametrize("name", CASES)
def test_reference_frequencies_and_attention_factors(name):
    case = CASES[name]
    rope = embedding(case)
    np.testing.assert_allclose(rope.inverse_frequencies, case["out"]["inv_freq_float64"], rtol=1e-12, atol=0)
    np.testing.assert_allclose(rope.inverse_frequencies, case["out"]["inv_freq_float32"], rtol=2e-6, atol=0)
    assert math.isclose(rope.attention_factor, case["params"]["attention_factor"], rel_tol=1e-14)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "positions" in case["out"]])
def test_reference_tables_carry_the_attention_factor(name):
    case = CASES[name]
    rope, positions = embedding(case, layout="half"), case["out"]["positions"]
    one = np.tile(np.repeat([1.0, 0.0], len(rope.inverse_frequencies)), (len(positions), 1))
    cosines, sines = np.split(rope.rotate(one, positions=positions), 2, axis=-1)
    tolerance = 1e-6 + positions.max() * 2e-7  # the library's angles are float32's
    np.testing.assert_allclose(cosines, case["out"]["cos_float32"], atol=tolerance)
    np.testing.assert_allclose(sines, case["out"]["sin_float32"], atol=tolerance)
    np.testing.assert_allclose(np.hypot(cosines, sines), rope.attention_factor, rtol=1e-12)
    np.testing.assert_allclose(np.hypot(rope.cosines, rope.sines), rope.attention_factor, rtol=1e-12)


def test_both_spellings_mean_the_same():
    new = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64, "rope_theta": 5e5}  # fmt: skip
    old = {"type": "llama3", **{key: new[key] for key in new if key not in ("rope_type", "rope_theta")}}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 1024}
    configs = [
        {**sizes, "rope_parameters": new},
        {**sizes, "rope_theta": 5e5, "rope_scaling": old, "head_dim": None},
        {**sizes, "head_dim": 16, "rope_theta": 5e5, "rope_scaling": {**old, "rope_type": "llama3"}},
    ]
    expected, _ = frequencies(16, 5e5, {key: new[key] for key in new if key != "rope_theta"})
    for config in configs:
        rope = ng.RotaryEmbedding.from_config(config, layout="half")
        np.testing.assert_array_equal(rope.inverse_frequencies, expected)
        assert (rope.layout, rope.cosines.shape) == ("half", (1024, 8))
        assert ng.RotaryEmbedding.from_config(config, 7, layout="half").max_positions == 7
    with pytest.raises(ng.RotaryError) as found:
        ng.RotaryEmbedding.from_config(configs[0], 0, layout="half")
    assert found.value.code == "zero-position-capacity"


def test_from_config_reads_what_stands_outside():
    config = {"head_dim": 8, "max_position_embeddings": 64, "original_max_position_embeddings": 16,
              "partial_rotary_factor": 0.5,
              "rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0]}}  # fmt: skip
    long = ng.RotaryEmbedding.from_config(config, layout="adjacent")
    np.testing.assert_allclose(long.inverse_frequencies, [1 / 4, 0.01 / 8], rtol=1e-15)
    assert math.isclose(long.attention_factor, math.sqrt(1 + math.log(4) / math.log(16)))
    short = ng.RotaryEmbedding.from_config(config, 16, layout="adjacent")
    np.testing.assert_allclose(short.inverse_frequencies, [1, 0.01 / 2], rtol=1e-15)
    assert short.attention_factor == long.attention_factor


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in (DATA / "tiny_llama").glob("*/io.npz")))
@pytest.mark.parametrize("file", ["config.json", "config_v4.json"])
def test_configs_of_real_checkpoints(folder, file):
    path = DATA / "tiny_llama" / folder
    if not (path / file).exists():
        assert file == "config_v4.json"
        return
    rope = ng.RotaryEmbedding.from_config(json.loads((path / file).read_text()), layout="half")
    with np.load(path / "io.npz") as io:
        if "inv_freq_float64" in io:
            np.testing.assert_allclose(rope.inverse_frequencies, io["inv_freq_float64"], rtol=1e-12)
        else:
            assert rope.attention_factor == 1


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "max_position_embeddings"])
def test_from_config_names_a_key_that_is_missing(key):
    config = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 1024}
    del config[key]
    with pytest.raises(ng.RotaryError, match=f"a configuration needs '{key}'") as found:
        ng.RotaryEmbedding.from_config(config, layout="half")
    assert found.value.code == "missing-config-key"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "'num_attention_heads' must be an integer above 0, not 0"),
        ({"hidden_size": "64"}, "'hidden_size' must be an integer above 0, not '64'"),
        ({"head_dim": 16.0}, "'head_dim' must be an integer above 0, not 16.0"),
        ({"max_position_embeddings": True}, "'max_position_embeddings' must be an integer"),
        ({"rope_scaling": "linear"}, "rope_parameters or rope_scaling must be a dict, or None, not 'linear'"),
    ],
)
def test_from_config_names_a_value_that_cannot_be(changes, words):
    config = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 1024, **changes}
    with pytest.raises(ng.RotaryError, match=words) as found:
        ng.RotaryEmbedding.from_config(config, layout="half")
    assert found.value.code == "invalid-config-value"


def test_none_counts_as_absent():
    config = {"head_dim": 8, "max_position_embeddings": 16, "rope_theta": 500.0, "hidden_size": None}
    plain = ng.RotaryEmbedding.from_config(config, layout="half").inverse_frequencies
    np.testing.assert_array_equal(plain, frequencies(8, 500.0)[0])
    for scaling, divisor in (
        ({"rope_type": "default", "rope_theta": None}, 1),
        ({"type": "linear", "rope_type": None, "factor": 4.0, "rope_theta": None}, 4),
    ):
        rope = ng.RotaryEmbedding.from_config({**config, "rope_parameters": scaling}, layout="half")
        np.testing.assert_array_equal(rope.inverse_frequencies, plain / divisor)


def test_scalars_of_numpy_are_numbers():
    expected = frequencies(4, 100.0, {"type": "linear", "factor": 2.0})[0]
    for two in (np.float32(2), np.int64(2), np.float64(2), np.float16(2)):
        found, _ = frequencies(np.int64(4), np.float32(100.0), {"type": "linear", "factor": two})
        np.testing.assert_array_equal(found, expected)
    given = {**LONGROPE, "long_factor": np.full(4, 2.0, np.float32), "original_max_position_embeddings": 2}
    np.testing.assert_array_equal(
        ng.RotaryEmbedding(8, 4, scaling=given).inverse_frequencies, frequencies(8, 1e4)[0] / 2
    )


def test_frequencies_are_of_whole_pairs():
    with pytest.raises(ng.RotaryError, match="must be even, not 3") as found:
        frequencies(3, 10.0)
    assert found.value.code == "odd-feature-width"
    with pytest.raises(TypeError, match="integer"):
        frequencies(4.0, 10.0)


def test_one_scale_of_attention_alone_changes_nothing():
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    expected = frequencies(8, 1e4, yarn)[1]
    for alone in ({"mscale": 0.5}, {"mscale_all_dim": 2}, {"mscale": 0.5, "mscale_all_dim": 0}):
        assert frequencies(8, 1e4, {**yarn, **alone})[1] == expected
    assert frequencies(8, 1e4, {**yarn, "mscale": 0.5, "mscale_all_dim": 2})[1] != expected


@pytest.mark.parametrize("trained", [8, 16])
def test_longrope_leaves_lengths_alone_unless_the_context_grows(trained):
    scaling = {**LONGROPE, "original_max_position_embeddings": 16, "max_position_embeddings": trained}
    assert ng.RotaryEmbedding(8, 4, scaling=scaling).attention_factor == 1


def test_linear_scaling_divides_positions():
    x = np.random.default_rng(0).normal(size=(1, 8))
    scaled = ng.RotaryEmbedding(8, 16, scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(scaled.rotate(x, 12), ng.RotaryEmbedding(8, 4).rotate(x, 3), rtol=1e-14)


def test_scaled_tables_have_the_transposed_rotation_as_derivative():
    rope = ng.RotaryEmbedding(8, 64, scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})
    assert rope.attention_factor > 1.1
    x, g = np.random.default_rng(0).normal(size=(2, 5, 8))
    out, pullback = ng.vjp(lambda x: rope.rotate(x, 9), x)
    np.testing.assert_allclose(np.sum(pullback(g)[0] * x), np.sum(g * out), rtol=1e-13)
    np.testing.assert_allclose(pullback(out)[0], rope.attention_factor**2 * x, rtol=1e-12)


REFUSED = [
    ("unknown-scaling-type", {"rope_type": "ntk-by-guess", "factor": 2.0}, "'ntk-by-guess': known are default, linear"),
    ("unknown-scaling-key", {"type": "linear", "factor": 2.0, "beta_fast": 32}, "'beta_fast' for scaling type"),
    ("unknown-scaling-key", {"factor": 2.0}, "'factor' for scaling type 'default'"),
    ("unknown-scaling-key", {"full_attention": {"rope_type": "default"}}, "'full_attention'"),
    ("missing-scaling-key", {"type": "dynamic"}, "'dynamic' needs 'factor'"),
    ("missing-scaling-key", {"rope_type": "llama3", "factor": 8.0}, "'llama3' needs 'low_freq_factor'"),
    ("missing-scaling-key", {"rope_type": "longrope", "short_factor": [1.0] * 4}, "'longrope' needs 'long_factor'"),
    ("invalid-scaling-value", {"type": "linear", "factor": 0.0}, "'factor' must be a finite number above 0, not 0.0"),
    ("invalid-scaling-value", {"type": "linear", "factor": "4"}, "'factor' must be .* not '4'"),
    ("invalid-scaling-value", {"type": "yarn", "factor": math.nan}, "'factor' must be .* not nan"),
    ("invalid-scaling-value", {"type": "yarn", "factor": 4.0, "attention_factor": -1.0}, "'attention_factor'"),
    ("invalid-scaling-value", {**LLAMA3, "high_freq_factor": 1.0}, "high_freq_factor 1.0 must exceed"),
    ("invalid-scaling-value", {**LONGROPE, "short_factor": [1.0] * 3}, "'short_factor' must be 4 numbers above 0"),
    ("invalid-scaling-value", {**LONGROPE, "short_factor": [1.0, 1.0, 1.0, 0.0]}, "'short_factor' must be 4 numbers"),
    ("invalid-scaling-value", {**LONGROPE, "long_factor": ["a", 1.0, 1.0, 1.0]}, "'long_factor' must be 4 numbers"),
    ("invalid-scaling-value", {**LONGROPE, "short_factor": ["2", 1.0, 1.0, 1.0]}, "'short_factor' must be 4 numbers"),
    ("invalid-scaling-value", {**LONGROPE, "short_factor": [[1.0, 1.0], 1.0, 1.0, 1.0]}, "'short_factor' must be 4"),
    ("invalid-scaling-value", {**LONGROPE, "short_factor": 1.0}, "'short_factor' must be 4 numbers"),
    ("invalid-scaling-value", {**LONGROPE, "original_max_position_embeddings": 1, "max_position_embeddings": 8},
     "above 1, not 1.0"),
    ("invalid-scaling-value", {"type": "linear", "factor": True}, "'factor' must be .* not True"),
    ("invalid-scaling-value", {"type": "linear", "factor": 10**400}, "'factor' must be a finite number"),
    ("invalid-scaling-value", {"type": "yarn", "factor": 4.0, "truncate": "no"}, "'truncate' must be True or False"),
    ("invalid-scaling-value", {"type": "yarn", "factor": 4.0, "mscale": "a"}, "'mscale' must be .* not 'a'"),
    ("invalid-scaling-value", {"type": "yarn", "factor": 4.0, "mscale_all_dim": -1}, "'mscale_all_dim' must be"),
    ("invalid-scaling-value", {"type": "yarn", "factor": 4.0, "beta_fast": 1e308}, "can't be computed"),
    ("invalid-scaling-value", {"type": "dynamic", "factor": 1e308, "max_position_embeddings": 1}, "infinite"),
    ("unknown-scaling-type", {"type": ["a"]}, r"unknown scaling type \['a'\]"),
    ("invalid-config-value", "linear", "scaling must be a dict, or None, not 'linear'"),
    ("invalid-base", {"rope_theta": "a"}, "base must be a finite number above 0, not 'a'"),
    ("invalid-base", {"rope_theta": -1.0}, "base must be a finite number above 0, not -1.0"),
    ("invalid-base", {"type": "yarn", "factor": 4.0, "rope_theta": 1.0}, "yarn needs a base other than 1"),
    ("rotary-width-mismatch", {"partial_rotary_factor": 1.5}, "rotary_dim 12 exceeds the 8 features"),
    ("rotary-width-mismatch", {"partial_rotary_factor": 1e308}, "rotary_dim 8000000000 exceeds the 8 features"),
    ("odd-feature-width", {"partial_rotary_factor": 0.4}, "rotary_dim must be even, not 3"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "scaling", "message"), REFUSED)
def test_what_is_not_understood_is_refused_by_name(code, scaling, message):
    kept = copy.deepcopy(scaling)
    with pytest.raises(ng.RotaryError, match=message) as found:
        ng.RotaryEmbedding(8, 4, scaling=scaling)
    assert found.value.code == code
    assert scaling == kept


def test_two_bases_are_refused():
    with pytest.raises(ng.RotaryError, match=r"base is 500.0, but the scaling's rope_theta is 100.0"):
        ng.RotaryEmbedding(8, 4, 500.0, scaling={"rope_theta": 100.0})
    same = ng.RotaryEmbedding(8, 4, 100.0, scaling={"rope_theta": 100.0})
    np.testing.assert_array_equal(same.inverse_frequencies, ng.RotaryEmbedding(8, 4, 100.0).inverse_frequencies)


def test_a_scaled_frequency_that_is_not_finite_is_named():
    with pytest.raises(ng.RotaryError) as found:
        ng.RotaryEmbedding(4, 20, scaling={"type": "linear", "factor": 1e-307})
    assert (found.value.code, found.value.position, found.value.pair) == ("non-finite-table-value", 18, 0)


def test_one_pair_has_nothing_to_rescale_dynamically():
    found, _ = frequencies(
        2, 10000.0, {"type": "dynamic", "factor": 2.0, "max_position_embeddings": 4}, max_positions=9
    )
    np.testing.assert_array_equal(found, [1.0])
