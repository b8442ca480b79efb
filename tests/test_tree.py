"""Trees: structure, paths, errors."""

from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest

from npgrad import tree

Point = namedtuple("Point", "x y")


def test_paths_read_like_python():
    params = {"blocks": [{"wq": 1}, {"wq": 2}], "p": Point(3, (4,)), 5: None}
    found = dict(tree.items(params, "params"))
    assert found == {
        "params['blocks'][0]['wq']": 1,
        "params['blocks'][1]['wq']": 2,
        "params['p'].x": 3,
        "params['p'].y[0]": 4,
    }
    assert [eval(path, {"params": params}) for path in found] == [1, 2, 3, 4] == tree.leaves(params)


def test_map_keeps_the_kinds_of_containers():
    d = defaultdict(list, a=1)
    mapped = tree.map(
        lambda x: x + 1, {"o": OrderedDict(b=1), "d": d, "p": Point(1, 2), "t": (1,), "l": [1], "n": None}
    )
    assert mapped == {"o": OrderedDict(b=2), "d": {"a": 2}, "p": Point(2, 3), "t": (2,), "l": [2], "n": None}
    assert type(mapped["o"]) is OrderedDict
    assert type(mapped["p"]) is Point
    assert mapped["d"]["missing"] == []
    assert d == {"a": 1}
    assert tree.map(lambda x: x + 1, Counter(a=1.5)) == Counter(a=2.5)


def test_several_trees_are_matched_by_key_not_by_order():
    assert tree.map(lambda x, y: (x, y), {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {"a": (1, 10), "b": (2, 20)}


def test_a_leaf_alone_is_a_tree():
    assert tree.map(lambda x: -x, 3) == -3
    assert list(tree.items(3, "x")) == [("x", 3)]
    assert tree.leaves(None) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"a": [1]}, r"\['a'\]: list with \['\[0\]', '\[1\]'\] against list with \['\[0\]'\]"),
        ({"a": (1, 2)}, r"list .* against tuple"),
        ({"b": [1, 2]}, r"at the top: dict"),
        ({"a": 1}, r"at \['a'\]: list .* against a leaf"),
        (1, r"at the top: dict .* against a leaf"),
        ({"a": [1, [2]]}, r"at \['a'\]\[1\]: a leaf against list"),
        ({"a": [1, None]}, r"at \['a'\]\[1\]: a leaf against NoneType"),
    ],
)
def test_structures_that_differ_are_named(other, words):
    with pytest.raises(ValueError, match=words):
        tree.map(lambda x, y: None, {"a": [1, 2]}, other)


def test_unflatten():
    assert tree.unflatten({"a": [1, 2], "b": 3}, [10, 20, 30]) == {"a": [10, 20], "b": 30}
    with pytest.raises(ValueError, match="2 leaves for a tree that has 3"):
        tree.unflatten([1, 2, 3], [1, 2])
