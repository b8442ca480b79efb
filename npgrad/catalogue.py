"""What npgrad knows of NumPy: each public function of its main namespace and of np.linalg, with what becomes of it.

The catalogue is read from the registry that the rules fill, so it can't be out of date.
"""

from __future__ import annotations

import numpy as np

from .variable import NONDIFFERENTIABLE, REFUSED, REGISTRY

UNKNOWN = "no rule"


class Catalogue(dict[str, str]):
    """From names, `np.exp`, to "differentiable", "plain result" or "refused: …"; printed as a table."""

    def __repr__(self) -> str:
        kinds: dict[str, list[str]] = {}
        for name, kind in self.items():
            kinds.setdefault(kind.partition(":")[0], []).append(name)
        parts = []
        for kind, names in sorted(kinds.items()):
            parts.append(f"{kind} ({len(names)})")
            width = max(map(len, names)) + 2
            if kind == "refused":
                parts += [f"  {name:{width}}{self[name].partition(': ')[2]}" for name in names]
                continue
            each = max(1, 118 // width)
            rows = [names[i : i + each] for i in range(0, len(names), each)]
            parts += ["  " + "".join(f"{name:{width}}" for name in row).rstrip() for row in rows]
        return "\n".join(parts)

    __str__ = __repr__


def supported() -> Catalogue:
    """Every public function of np and np.linalg: differentiable, with a plain array as result, or refused and why.

    >>> supported()["np.exp"], supported()["np.argmax"]
    ('differentiable', 'plain result')
    >>> supported()["np.putmask"]
    'refused: it changes an array in place: use np.where(mask, values, x)'
    """
    found = Catalogue()
    for home, prefix in ((np, "np."), (np.linalg, "np.linalg.")):
        for name in sorted(home.__all__):
            function = getattr(home, name)
            if callable(function) and not isinstance(function, type):
                found[prefix + name] = _kind(function)
    return found


def _kind(function: object) -> str:
    if function in REGISTRY:
        return "differentiable"
    if function in NONDIFFERENTIABLE:
        return "plain result"
    return f"refused: {REFUSED[function]}" if function in REFUSED else UNKNOWN
