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
    return [leaf for _, leaf in items(tree)]


def map(function: Callable, tree: Any, *rest: Any) -> Any:
    """The tree of `function(leaf, *leaves of the others)`; ValueError names the path where structures differ.

    >>> map(lambda p, g: p - g, {"w": 3.0, "b": [1.0]}, {"w": 1.0, "b": [0.5]})
    {'w': 2.0, 'b': [0.5]}
    """
    return map_with_path(lambda _, *found: function(*found), tree, *rest)


def map_with_path(function: Callable, tree: Any, *rest: Any, path: str = "") -> Any:
    """Like `map`, with each leaf's path as the function's first argument."""
    children, others = _children(tree), [dict(_children(other)) for other in rest]
    for other, found in zip(rest, others):
        same_kind = type(other) is type(tree) if is_node(tree) else not is_node(other)
        if not same_kind or found.keys() != dict(children).keys():
            raise ValueError(f"trees differ at {path or 'the top'}: {_describe(tree)} against {_describe(other)}")
    if not is_node(tree):
        return function(path, tree, *rest)
    return _rebuild(tree, [map_with_path(function, c, *(o[s] for o in others), path=path + s) for s, c in children])


def unflatten(tree: Any, new_leaves: Iterable[Any]) -> Any:
    """A tree of this structure with other leaves, in order; ValueError if their number differs."""
    remaining = list(new_leaves)[::-1]
    if len(remaining) != len(leaves(tree)):
        raise ValueError(f"{len(remaining)} leaves for a tree that has {len(leaves(tree))}")
    return map(lambda _: remaining.pop(), tree)


def is_node(tree: Any) -> bool:  # a container, or None, rather than a leaf
    return tree is None or isinstance(tree, (dict, list, tuple))


def _children(tree: Any) -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [(f"[{key!r}]", child) for key, child in tree.items()]
    if isinstance(tree, (list, tuple)):
        names = getattr(tree, "_fields", None)
        return [(f".{names[i]}" if names else f"[{i}]", child) for i, child in enumerate(tree)]
    return []


def _rebuild(tree: Any, children: list[Any]) -> Any:
    if isinstance(tree, dict):
        new = copy.copy(tree)  # keeps a subclass and its settings: OrderedDict, defaultdict
        new.update(zip(tree, children))
        return new
    return type(tree)(*children) if hasattr(tree, "_fields") else tree if tree is None else type(tree)(children)


def _describe(tree: Any) -> str:
    return f"{type(tree).__name__} with {[s for s, _ in _children(tree)]}" if is_node(tree) else "a leaf"
