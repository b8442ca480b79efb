"""Trees: nested dicts, lists, tuples and named tuples with arrays at the leaves; None is an empty tree.

Every leaf has a path that reads like the Python that reaches it, `params['blocks'][0]['wq']`: reports and errors
name leaves that way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def items(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf's path and value, in order; `path` is the name of the whole.

    >>> list(items({"w": [1.0, 2.0], "b": None}, "p"))
    [("p['w'][0]", 1.0), ("p['w'][1]", 2.0)]
    """
    if not is_node(tree):
        yield path, tree
    for suffix, child in _children(tree):
        yield from items(child, path + suffix)


def leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    return [leaf for _, child in _entries(tree) for leaf in leaves(child)] if is_node(tree) else [tree]


def map(function: Callable, tree: Any, *rest: Any) -> Any:
    """The tree of `function(leaf, *leaves of the others)`; ValueError names the path where structures differ.

    >>> map(lambda p, g: p - g, {"w": 3.0, "b": [1.0]}, {"w": 1.0, "b": [0.5]})
    {'w': 2.0, 'b': [0.5]}
    """
    for other in rest:
        _check_alike(tree, other, "")
    return _map(function, tree, rest)


def map_with_path(function: Callable, tree: Any, *rest: Any, path: str = "") -> Any:
    """Like `map`, with each leaf's path as the function's first argument."""
    for other in rest:
        _check_alike(tree, other, path)
    paths = (found for found, _ in items(tree, path))
    return _map(lambda *found: function(next(paths), *found), tree, rest)


def unflatten(tree: Any, new_leaves: Iterable[Any]) -> Any:
    """A tree of this structure with other leaves, in order; ValueError if their number differs."""
    remaining = list(new_leaves)[::-1]
    if len(remaining) != len(leaves(tree)):
        raise ValueError(f"{len(remaining)} leaves for a tree that has {len(leaves(tree))}")
    return map(lambda _: remaining.pop(), tree)


def is_node(tree: Any) -> bool:  # a container, or None, rather than a leaf
    return tree is None or isinstance(tree, (dict, list, tuple))


def _entries(node: Any) -> Iterable[tuple[Any, Any]]:  # pairs of what to index it with, and the child
    return node.items() if isinstance(node, dict) else enumerate(node or ())


def _children(tree: Any) -> list[tuple[str, Any]]:
    names = getattr(tree, "_fields", None)
    found = _entries(tree) if is_node(tree) else ()
    return [(f".{names[key]}" if names else f"[{key!r}]", child) for key, child in found]


def _map(function: Callable, tree: Any, rest: Iterable) -> Any:
    if not is_node(tree):
        return function(tree, *rest)
    return _rebuild(tree, [_map(function, child, [other[key] for other in rest]) for key, child in _entries(tree)])


def _rebuild(tree: Any, children: list[Any]) -> Any:
    if isinstance(tree, dict):
        new = {} if type(tree) is dict else copy.copy(tree)  # a copy keeps a subclass's settings: defaultdict
        dict.update(new, zip(tree, children))  # Counter's own would add
        return new
    return type(tree)(*children) if hasattr(tree, "_fields") else tree if tree is None else type(tree)(children)


def _check_alike(tree: Any, other: Any, path: str) -> None:
    children, others = _children(tree), dict(_children(other))
    same_kind = type(other) is type(tree) if is_node(tree) else not is_node(other)
    if not same_kind or others.keys() != dict(children).keys():
        raise ValueError(f"trees differ at {path or 'the top'}: {_describe(tree)} against {_describe(other)}")
    for suffix, child in children:
        _check_alike(child, others[suffix], path + suffix)


def _describe(tree: Any) -> str:
    return f"{type(tree).__name__} with {[s for s, _ in _children(tree)]}" if is_node(tree) else "a leaf"
