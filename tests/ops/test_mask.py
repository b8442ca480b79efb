"""causal_mask: which keys are hidden, and that hidden scores have no gradient."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng


def shown(queries, keys, **options):
    return np.isfinite(ng.causal_mask(np.zeros((queries, keys)), **options)).astype(int).tolist()


def test_the_last_query_sees_the_last_key():
    assert shown(3, 3) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert shown(2, 4) == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert shown(3, 2) == [[0, 0], [1, 0], [1, 1]]


def test_an_offset_places_the_first_query():
    assert shown(2, 4, offset=0) == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert shown(2, 4, offset=np.int64(3)) == [[1, 1, 1, 1], [1, 1, 1, 1]]
    assert shown(2, 2, offset=-1) == [[0, 0], [1, 0]]


def test_a_window_keeps_the_last_keys():
    assert shown(4, 4, window=2) == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert shown(1, 4, window=1) == [[0, 0, 0, 1]]
    assert shown(2, 3, window=9) == shown(2, 3)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(-3, 6), st.none() | st.integers(1, 7))
def test_every_key_by_its_definition(queries, keys, offset, window):
    found = shown(queries, keys, offset=offset, window=window)
    for i in range(queries):
        position = i + (keys - queries if offset is None else offset)
        for j in range(keys):
            assert found[i][j] == (position - (window or 99) < j <= position)


def test_hidden_scores_have_no_gradient_whatever_they_are():
    scores = np.array([[0.5, np.inf, np.nan], [1.0, 2.0, -np.inf], [3.0, 4.0, 5.0]])
    kept = scores.copy()
    g = np.arange(1.0, 10.0).reshape(3, 3)
    out, pullback = ng.vjp(ng.causal_mask, scores)
    np.testing.assert_array_equal(out, [[0.5, -np.inf, -np.inf], [1, 2, -np.inf], [3, 4, 5]])
    np.testing.assert_array_equal(pullback(g)[0], np.tril(g))
    np.testing.assert_array_equal(scores, kept)


def test_softmax_of_a_query_with_nothing_to_see():
    p, pullback = ng.vjp(lambda x: ng.softmax(ng.causal_mask(x)), np.ones((3, 2)))
    np.testing.assert_array_equal(p, [[0, 0], [1, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(pullback(np.array([[1.0, 2.0]] * 3))[0], [[0, 0], [0, 0], [-0.25, 0.25]])


def test_errors():
    with pytest.raises(ValueError, match=r"\(\.\.\., queries, keys\), but have shape \(3,\)"):
        ng.causal_mask(np.ones(3))
    for window in (0, -2):
        with pytest.raises(ValueError, match=f"a window of {window} keys .* at least 1"):
            ng.causal_mask(np.ones((2, 2)), window=window)
    with pytest.raises(TypeError):
        ng.causal_mask(np.ones((2, 2)), offset=0.5)
