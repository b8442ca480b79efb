"""The page's data: size, summaries, layout, escaping."""

import numpy as np
import pytest

import npgrad as ng
from npgrad.show.page import heat_map, page, places


def long_tape(records):
    rng = np.random.default_rng(0)
    tape = ng.WatchfulTape()
    x = first = tape.variable(rng.normal(size=(64, 64)), name="x")
    while len(tape.records) < records:
        x = np.tanh(x * rng.normal(size=(64, 64)))
    tape.gradient(np.sum(x), [first], retain=True)
    return tape


def test_three_hundred_records_are_less_than_two_megabytes():
    assert len(page(long_tape(300)).encode()) < 2_000_000


def test_layers_go_down_and_places_are_distinct():
    tape = long_tape(20)
    found = places(tape)
    assert len(set(found)) == len(found)
    for i, record in enumerate(tape.records):
        assert all(found[p][1] < found[i][1] for p in record.parents)


def test_big_arrays_are_means_of_blocks():
    found = heat_map(np.arange(64.0).reshape(8, 8), 4)
    np.testing.assert_array_equal(found["numbers"][0], [4.5, 6.5, 8.5, 10.5])
    assert (found["edges"], found["range"]) == ([[0, 2, 4, 6, 8]] * 2, [0.0, 63.0])


@pytest.mark.parametrize("array", [np.array(2.0), np.zeros((0, 3)), np.zeros(0), np.array([np.nan, np.inf])])
def test_every_shape_and_number_has_a_map(array):
    assert np.array(heat_map(array, 4)["numbers"], float).size == array.size


def test_complex_numbers_are_shown_in_their_parts():
    found = heat_map(np.array([[1 + 2j, 3 - 4j]], np.complex64), 4)
    assert (found["numbers"], found["dtype"]) == ([[1.0, 2.0, 3.0, -4.0]], "float32")
    assert heat_map(np.array(1j), 4)["numbers"] == [[0.0, 1.0]]
    tape = ng.WatchfulTape()
    x = tape.variable(np.ones((1, 2, 4)))
    weights = [np.eye(4)] * 4
    ng.self_attention(x, *weights, heads=2, tables=ng.RotaryEmbedding(2, 2).tables((1, 2, 2, 2)))
    assert "self_attention" in page(tape)


def test_a_name_cannot_end_the_script():
    tape = ng.WatchfulTape()
    np.exp(tape.variable(1.0, name="</script><script>"))
    text = page(tape)
    assert text.count("</script>") == 2
    assert "\\u003c/script\\u003e" in text


def test_a_released_tape_has_no_page(tmp_path):
    tape = ng.Tape()
    x = tape.variable(1.0)
    tape.gradient(np.exp(x), [x])
    with pytest.raises(ValueError, match="retain=True"):
        tape.save_page(tmp_path / "tape.html")


def test_a_tape_with_nothing_to_show_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "tape.html"
    path.write_text("an earlier page")
    with pytest.raises(ValueError, match=r"empty|no records"):
        ng.Tape().save_page(path)
    assert path.read_text() == "an earlier page"
