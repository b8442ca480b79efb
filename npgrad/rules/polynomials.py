"""Polynomials as NumPy's older functions have them: coefficients from the highest power down.

Roots, fits and quotients (np.roots, np.polyfit, np.polydiv) have no rule.
"""

from __future__ import annotations

import numpy as np

from ..variable import implements
from .reductions import as_array


def _coefficients(p):
    p = as_array(p)
    return p if p.ndim else np.reshape(p, (1,))


@implements(np.polyval)
def _polyval(p, x):
    p = _coefficients(p)
    x = as_array(x)
    result = np.zeros(x.shape, np.result_type(p.dtype, x.dtype))
    for i in range(p.shape[0]):
        result = result * x + p[i]
    return result


def _aligned(a, b):
    """Both with as many coefficients as the longer one."""
    a, b = _coefficients(a), _coefficients(b)
    n = max(a.size, b.size)
    return tuple(np.concatenate([np.zeros(n - p.size, p.dtype), p]) if p.size < n else p for p in (a, b))


@implements(np.polyadd)
def _polyadd(a1, a2):
    a, b = _aligned(a1, a2)
    return a + b


@implements(np.polysub)
def _polysub(a1, a2):
    a, b = _aligned(a1, a2)
    return a - b


@implements(np.polymul)
def _polymul(a1, a2):
    return np.convolve(_coefficients(a1), _coefficients(a2))


@implements(np.polyder)
def _polyder(p, m=1):
    for _ in range(m):
        p = p[:-1] * np.arange(p.size - 1, 0, -1)
    return p


@implements(np.polyint)
def _polyint(p, m=1, k=None):
    constants = np.zeros(m) if k is None else np.broadcast_to(k, (m,))
    for i in range(m):
        p = np.concatenate([p / np.arange(p.size, 0, -1), constants[i : i + 1]])
    return p


@implements(np.vander)
def _vander(x, N=None, increasing=False):
    n = x.size if N is None else N
    columns = [np.ones(x.shape, np.promote_types(x.dtype, int))]
    for _ in range(1, n):
        columns.append(columns[-1] * x)
    columns = columns[:n]
    return np.stack(columns if increasing else columns[::-1], axis=-1)
