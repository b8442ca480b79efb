"""Generation: settings and their boundaries, seeds, streams, stops, and batches that equal each prompt alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npgrad import decoder
from npgrad.decoder.generation import draw

CONFIG = decoder.Config(
    vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=40,
)  # fmt: skip
PARAMS = decoder.init(CONFIG, seed=5)
SAMPLED = {"max_new_tokens": 12, "temperature": 1.5, "top_k": 9, "top_p": 0.95}
PROMPTS = [[3], [1, 2, 3, 4, 5, 6], [9, 8, 7]]


def run(prompt, params=PARAMS, **options):
    return list(decoder.generate(CONFIG, params, prompt, **options))


def test_greedy_generation_equals_recomputing_everything():
    tokens = [4, 2]
    for token in decoder.generate(CONFIG, PARAMS, tokens, max_new_tokens=20):
        assert type(token) is int
        assert token == int(np.argmax(decoder.forward(CONFIG, PARAMS, [tokens])[0, -1]))
        tokens = [*tokens, token]
    assert len(tokens) == 22


def test_the_seed_decides_the_tokens():
    first = run([1, 2], seed=0, **SAMPLED)
    assert run(np.array([1, 2]), seed=0, **SAMPLED) == first
    assert run([1, 2], seed=1, **SAMPLED) != first


def test_sampled_tokens_follow_the_probabilities():
    logits = decoder.forward(CONFIG, PARAMS, [[1, 2]])[0, -1]
    p = decoder.probabilities(logits, temperature=2.0, top_k=5)
    tokens = run([[1, 2]] * 2000, max_new_tokens=1, temperature=2.0, top_k=5, seed=range(2000))[0]
    counts = np.bincount(tokens, minlength=13) / 2000
    np.testing.assert_allclose(counts, p, atol=5 * np.sqrt(0.25 / 2000))
    assert not counts[p == 0].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{"max_new_tokens": 30}, SAMPLED, {**SAMPLED, "repetition_penalty": 1.3}])
def test_a_batch_of_prompts_equals_each_alone(options, dtype):
    params = decoder.init(CONFIG, seed=6, dtype=dtype)
    batch = run(PROMPTS, params, seed=10, **options)
    assert batch[0].shape == (3,)
    assert np.array(batch).T.tolist() == [run(prompt, params, seed=10, **options) for prompt in PROMPTS]
    seeded = run(PROMPTS, params, seed=[1, 2, 3], **options)
    alone = [run(prompt, params, seed=s, **options) for prompt, s in zip(PROMPTS, (1, 2, 3))]
    assert np.array(seeded).T.tolist() == alone


def test_stopped_prompts_are_marked_and_the_others_go_on():
    free = np.array(run(PROMPTS, **SAMPLED)).T.tolist()
    stop = free[1][3]
    found = np.array(run(PROMPTS, stop={stop}, **SAMPLED)).T.tolist()
    ends = [row.index(stop) + 1 if stop in row else len(row) for row in free]
    assert len(set(ends)) > 1
    for row, whole, end in zip(found, free, ends):
        assert row == whole[:end] + [-1] * (max(ends) - end)
    assert run(PROMPTS[1], stop=[stop], **SAMPLED) == free[1][: ends[1]]


def test_tokens_are_computed_when_they_are_asked_for(monkeypatch):
    calls = []
    attention = decoder.model.attention
    monkeypatch.setattr(decoder.model, "attention", lambda *a, **k: calls.append(a) or attention(*a, **k))
    stream = decoder.generate(CONFIG, PARAMS, [1], max_new_tokens=5)
    assert calls == []
    assert next(stream) == run([1], max_new_tokens=1)[0]
    assert len(calls) == 2 * CONFIG.num_hidden_layers  # of this stream, and of the other one
    assert [q.shape[-2] for q, *_ in calls] == [1] * 4
    assert run([1], max_new_tokens=0) == []


def test_the_last_position_is_used():
    assert len(run([1, 2], max_new_tokens=38)) == 38


def test_a_repetition_penalty_is_applied_to_tokens_that_were_there():
    logits = decoder.forward(CONFIG, PARAMS, [[7, 3]])[0, -1].astype(float)
    for token in (7, 3):
        logits[token] *= 1 / 5 if logits[token] > 0 else 5
    assert run([7, 3], max_new_tokens=1, repetition_penalty=5.0) == [np.argmax(logits)]
    plain, varied = run([1], max_new_tokens=30), run([1], max_new_tokens=30, repetition_penalty=5.0)
    assert len(set(varied)) > len(set(plain))


def test_overflowed_parameters_are_noticed():
    broken = {**PARAMS, "norm": PARAMS["norm"] * np.float32(np.nan)}
    with pytest.raises(ValueError, match="largest is nan"):
        run([1], broken, max_new_tokens=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1.0}, "temperature must be"),
        ({"temperature": np.nan}, "temperature must be"),
        ({"temperature": 10**400}, "temperature must be a finite number"),
        ({"repetition_penalty": 10**400}, "repetition_penalty must be a finite number"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.5}, "top_p must be above 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be"),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0"),
        ({"max_new_tokens": 40}, "1 tokens and 40 new ones exceed max_position_embeddings 40"),
        ({"seed": [1, 2]}, "2 seeds for 1 prompts"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        decoder.generate(CONFIG, PARAMS, [1], **{"max_new_tokens": 3, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": 3}, "a prompt must be a list of token ids, or a batch a list of such lists, not 3"),
        ({"stop": 5}, r"stop must be a collection of token ids, such as \{5\}, not 5"),
        ({"stop": "5"}, "stop must be a collection of token ids, .* not '5'"),
        ({"stop": ["5"]}, "a token of stop must be an integer, not '5'"),
        ({"temperature": "a"}, "temperature must be a number, not 'a'"),
        ({"top_k": 2.0}, "top_k must be an integer, or None, not 2.0"),
        ({"top_p": "a"}, "top_p must be a number, or None, not 'a'"),
        ({"repetition_penalty": None}, "repetition_penalty must be a number, not None"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be an integer, not 2.5"),
    ],
)
def test_settings_of_another_type_are_refused_at_once(options, words):
    with pytest.raises(TypeError, match=words):
        decoder.generate(CONFIG, PARAMS, **{"prompt": [1], "max_new_tokens": 3, **options})


def test_settings_may_be_numbers_of_numpy():
    plain = run([1, 2], max_new_tokens=5, temperature=0.5, top_k=4, top_p=0.5, repetition_penalty=2.0)
    given = {"top_p": np.float32(0.5), "repetition_penalty": np.float64(2), "stop": np.array([99])}
    assert run([1, 2], max_new_tokens=np.int64(5), temperature=np.float32(0.5), top_k=np.int32(4), **given) == plain


@pytest.mark.parametrize("shape", [(), (0,), (1, 3)])
def test_logits_are_those_of_one_token(shape):
    with pytest.raises(ValueError, match=r"logits must have shape \(vocabulary,\)"):
        decoder.probabilities(np.zeros(shape))


@pytest.mark.parametrize("top_p", [1e-12, 1e-13, 5e-324])
def test_the_likeliest_token_stays_however_small_top_p_is(top_p):
    np.testing.assert_array_equal(decoder.probabilities([1.0, 3.0, 3.0, 2.0], top_p=top_p), [0, 1, 0, 0])
    greedy = run([1, 2], max_new_tokens=5)
    assert run([1, 2], max_new_tokens=5, temperature=1.0, top_p=top_p) == greedy


@pytest.mark.parametrize("prompt", [[], [[]], [[1], []], [1.5], [[1], [0.5]], "text"])
def test_what_is_no_prompt_is_refused_at_once(prompt):
    with pytest.raises(ValueError, match="at least one token id"):
        decoder.generate(CONFIG, PARAMS, prompt, max_new_tokens=3)


@pytest.mark.parametrize("prompt", [[13], [-1], [[1], [2, 13]]])
def test_tokens_outside_the_vocabulary_are_refused_at_once(prompt):
    with pytest.raises(IndexError, match=r"token ids must be in 0\.\.12"):
        decoder.generate(CONFIG, PARAMS, prompt, max_new_tokens=3)


def test_temperature():
    np.testing.assert_allclose(decoder.probabilities([0.0, np.log(2.0)], temperature=0.5), [0.2, 0.8])
    np.testing.assert_array_equal(decoder.probabilities([1.0, 2.0, 1.5], temperature=1e-320), [0, 1, 0])


def test_of_equals_the_first_are_kept():
    np.testing.assert_array_equal(decoder.probabilities([0.0, 0.0, 0.0, 0.0], top_k=2), [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(decoder.probabilities([0.0, 0.0, 0.0, 0.0], top_p=0.5), [0.5, 0.5, 0, 0])


def test_top_p_of_one_keeps_even_the_rarest():
    assert np.count_nonzero(decoder.probabilities(np.linspace(0, -80, 200), top_p=1.0)) == 200


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-50, 50) | st.just(-np.inf), min_size=1, max_size=12).filter(lambda x: max(x) > -np.inf),
    st.floats(0.05, 5),
    st.none() | st.integers(1, 20),
    st.none() | st.floats(0.01, 1),
)
def test_laws_of_the_probabilities(logits, temperature, top_k, top_p):
    p = decoder.probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    free = decoder.probabilities(logits, temperature=temperature)
    kept = p > 0
    assert p.sum() == pytest.approx(1, rel=1e-12)
    assert kept.sum() <= (top_k or len(logits))
    assert free[kept].min() >= free[~kept].max(initial=0)
    np.testing.assert_allclose(p[kept] / p.max(), free[kept] / free.max(), rtol=1e-9)
    if top_k is None and top_p is not None:
        assert free[kept].sum() >= top_p - 1e-9
        assert free[kept].sum() - free[kept].min() < top_p + 1e-9


@pytest.mark.parametrize("total", [0.999, 1.0, 1.001])
def test_draws_follow_the_weights_whatever_their_sum(total):
    weights = np.array([0.0, 0.4, 0.0, 0.6, 0.0], np.float32) * np.float32(total)
    rng = np.random.default_rng(0)
    counts = np.bincount([draw(weights, rng) for _ in range(10_000)], minlength=5)
    np.testing.assert_allclose(counts / 10_000, [0, 0.4, 0, 0.6, 0], atol=0.02)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]


def test_a_draw_at_the_very_end_is_the_last_possible_token():
    class Last:
        def random(self):
            return 1.0

    assert draw(np.array([0.0, 0.5, 0.5, 0.0]), Last()) == 2
