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
        return
    for key, child in _entries(tree):
        at = path + _suffix(tree, key)
        if is_node(child):
            yield from items(child, at)
        else:
            yield at, child


def leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    if not is_node(tree):
        return [tree]
    found: list[Any] = []
    for _, child in _entries(tree):
        found += leaves(child) if is_node(child) else [child]
    return found


def map(function: Callable, tree: Any, *rest: Any) -> Any:
    """The tree of `function(leaf, *leaves of the others)`; ValueError names the path where structures differ.

    >>> map(lambda p, g: p - g, {"w": 3.0, "b": [1.0]}, {"w": 1.0, "b": [0.5]})
    {'w': 2.0, 'b': [0.5]}
    """
    columns = [leaves_like(tree, other) for other in rest]
    return filled(tree, iter([function(*row) for row in zip(leaves(tree), *columns)]))


def map_with_path(function: Callable, tree: Any, *rest: Any, path: str = "") -> Any:
    """Like `map`, with each leaf's path as the function's first argument."""
    columns = [leaves_like(tree, other, path) for other in rest]
    return filled(tree, iter([function(*found, *row) for found, *row in zip(items(tree, path), *columns)]))


def unflatten(tree: Any, new_leaves: Iterable[Any]) -> Any:
    """A tree of this structure with other leaves, in order; ValueError if their number differs."""
    new = list(new_leaves)
    if len(new) != len(leaves(tree)):
        raise ValueError(f"{len(new)} leaves for a tree that has {len(leaves(tree))}")
    return filled(tree, iter(new))


def filled(tree: Any, remaining: Iterator[Any]) -> Any:
    """A tree of this structure, whose leaves are the next of an iterator."""
    if not is_node(tree):
        return next(remaining)
    return _rebuild(tree, [filled(c, remaining) if is_node(c) else next(remaining) for _, c in _entries(tree)])


def leaves_like(tree: Any, other: Any, path: str = "") -> list[Any]:
    """The leaves of a tree that is built like the first one, in its order; ValueError names the path if it isn't."""
    alike = type(other) is type(tree) and len(other or ()) == len(tree or ()) if is_node(tree) else not is_node(other)
    if not alike or (isinstance(tree, dict) and other.keys() != tree.keys()):
        raise ValueError(f"trees differ at {path or 'the top'}: {_describe(tree)} against {_describe(other)}")
    if not is_node(tree):
        return [other]
    found: list[Any] = []
    for key, child in _entries(tree):
        leaf = not (is_node(child) or is_node(other[key]))
        found += [other[key]] if leaf else leaves_like(child, other[key], path + _suffix(tree, key))
    return found


def is_node(tree: Any) -> bool:  # a container, or None, rather than a leaf
    return tree is None or isinstance(tree, (dict, list, tuple))


def _entries(node: Any) -> Iterable[tuple[Any, Any]]:  # pairs of what to index it with, and the child
    return node.items() if isinstance(node, dict) else enumerate(node or ())


def _suffix(node: Any, key: Any) -> str:
    return f".{node._fields[key]}" if hasattr(node, "_fields") else f"[{key!r}]"


def _rebuild(tree: Any, children: list[Any]) -> Any:
    if isinstance(tree, dict):
        new = {} if type(tree) is dict else copy.copy(tree)  # a copy keeps a subclass's settings: defaultdict
        dict.update(new, zip(tree, children))  # Counter's own would add
        return new
    return type(tree)(*children) if hasattr(tree, "_fields") else tree if tree is None else type(tree)(children)


def _describe(tree: Any) -> str:
    keys = [_suffix(tree, key) for key, _ in _entries(tree)] if is_node(tree) else None
    return "a leaf" if keys is None else f"{type(tree).__name__} with {keys}"
