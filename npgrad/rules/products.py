"""Products of vectors, matrices and tensors: matmul for all combinations of ranks, einsum, and what reduces to them.

Two operations do the work. `matmul` folds the leading axes of x into one product when y is a matrix, which is about
twice as fast as NumPy's batch of products. `contract` is einsum of one or two operands in which no letter repeats; it
is a transposed, reshaped matmul, and so is its pullback. np.einsum of more operands is contracted in pairs.
"""

from __future__ import annotations

import functools
import math
import string

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..primitive import primitive
from ..variable import REGISTRY, implements
from .shaping import as_array, in_one_dtype

# Matrix products.


@primitive
def matmul(x1, x2, /):
    """np.matmul, as one product if x1 is a contiguous stack of matrices and x2 a single one."""
    if type(x1) is type(x2) is np.ndarray and x1.ndim > 2 == x2.ndim and x1.flags.c_contiguous and x1.size:
        return np.matmul(x1.reshape(-1, x1.shape[-1]), x2).reshape(*x1.shape[:-1], x2.shape[-1])
    return np.matmul(x1, x2)


def _matmul_left(out, x, y):
    x, y = as_array(x), as_array(y)
    if y.ndim == 1:
        return lambda g: g[..., None] * y if g.ndim else g * y
    if x.ndim == 1:
        return lambda g: np.matmul(y, g[..., None])[..., 0]
    return lambda g: matmul(g, np.matrix_transpose(y))


def _matmul_right(out, x, y):
    x, y = as_array(x), as_array(y)
    if x.ndim == 1:
        if y.ndim == 1:
            return lambda g: g * x
        return lambda g: x[:, None] * g[..., None, :]
    if y.ndim == 1:
        return lambda g: np.matmul(np.ravel(g), _rows(x))
    if y.ndim == 2:  # one product over all leading axes, instead of a batch of products to be summed
        return lambda g: np.matmul(np.matrix_transpose(_rows(x)), _rows(g))
    return lambda g: np.matmul(np.matrix_transpose(x), g)


def _rows(x):
    return np.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


matmul.defvjp(_matmul_left, _matmul_right)
REGISTRY[np.matmul] = matmul
implements(np.linalg.matmul)(lambda x1, x2, /: matmul(x1, x2))


@implements(np.linalg.multi_dot)
def _multi_dot(arrays, *, out=None):
    arrays = [*map(as_array, arrays)]
    if len(arrays) < 2 or any(a.ndim != 2 for a in arrays[1:-1]) or not {arrays[0].ndim, arrays[-1].ndim} <= {1, 2}:
        raise ValueError("np.linalg.multi_dot takes at least two arrays: matrices, and at the ends vectors too")
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0], *(a.shape[0] for a in arrays[1:])]
    sizes.append(1 if arrays[-1].ndim == 1 else arrays[-1].shape[1])

    @functools.cache
    def cheapest(i, j):
        """The cost of the product of arrays i to j, and where to part it."""
        if i == j:
            return 0, i
        ends = sizes[i] * sizes[j + 1]
        parts = (cheapest(i, k)[0] + cheapest(k + 1, j)[0] + ends * sizes[k + 1] for k in range(i, j))
        return min((cost, k) for k, cost in enumerate(parts, i))

    def product(i, j):
        k = cheapest(i, j)[1]
        return arrays[i] if i == j else np.matmul(product(i, k), product(k + 1, j))

    return product(0, len(arrays) - 1)


# Other products.


@implements(np.dot)
def _dot(a, b, out=None):
    a, b = as_array(a), as_array(b)
    if not a.ndim or not b.ndim:
        return a * b
    return matmul(a, b) if b.ndim <= 2 else _tensordot(a, b, (-1, -2))


implements(np.vdot)(lambda a, b, /: matmul(np.ravel(as_array(a)), np.ravel(as_array(b))))


@implements(np.inner)
def _inner(a, b, /):
    a, b = as_array(a), as_array(b)
    return a * b if not a.ndim or not b.ndim else _tensordot(a, b, (-1, -1))


@implements(np.outer)
def _outer(a, b, out=None):
    return np.ravel(as_array(a))[:, None] * np.ravel(as_array(b))


@implements(np.linalg.outer)
def _vector_outer(x1, x2, /):
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(f"np.linalg.outer takes two vectors, not arrays of {np.ndim(x1)} and {np.ndim(x2)} dimensions")
    return _outer(x1, x2)


@implements(np.tensordot)
def _tensordot(a, b, axes=2):
    a, b = as_array(a), as_array(b)
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(f"np.tensordot over {axes} axes of shapes {a.shape} and {b.shape}: there are fewer")
        axes = range(a.ndim - axes, a.ndim), range(axes)
    left, right = (normalize_axis_tuple(pair, x.ndim) for pair, x in zip(axes, (a, b)))
    if [a.shape[i] for i in left] != [b.shape[j] for j in right]:
        raise ValueError(f"np.tensordot over axes {axes} of shapes {a.shape} and {b.shape}: their sizes differ")
    letters = string.ascii_letters
    first, second = [*letters[: a.ndim]], [*letters[a.ndim : a.ndim + b.ndim]]
    for i, j in zip(left, right):
        second[j] = first[i]
    kept = [c for k, c in enumerate(first) if k not in left] + [c for k, c in enumerate(second) if k not in right]
    return contract(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


@implements(np.linalg.tensordot)
def _array_tensordot(x1, x2, /, *, axes=2):
    return _tensordot(x1, x2, axes)


@implements(np.kron)
def _kron(a, b):
    a, b = as_array(a), as_array(b)
    n = max(a.ndim, b.ndim)
    first, second = ((1,) * (n - x.ndim) + x.shape for x in (a, b))
    outer = [k for size in first for k in (size, 1)], [k for size in second for k in (1, size)]
    return np.reshape(np.reshape(a, outer[0]) * np.reshape(b, outer[1]), tuple(i * j for i, j in zip(first, second)))


@implements(np.cross)
def _cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = np.moveaxis(as_array(a), axisa, -1), np.moveaxis(as_array(b), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(f"np.cross takes vectors of 3 elements, not of {a.shape[-1]} and {b.shape[-1]}")
    (a0, a1, a2), (b0, b1, b2) = ([x[..., i] for i in range(3)] for x in (a, b))
    return np.moveaxis(np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1), -1, axisc)


implements(np.linalg.cross)(lambda x1, x2, /, *, axis=-1: _cross(x1, x2, axis=axis))


@implements(np.vecdot, np.linalg.vecdot)
def _vecdot(x1, x2, /, *, axis=-1):
    x1, x2 = (np.moveaxis(as_array(x), axis, -1) for x in (x1, x2))
    return np.matmul(x1[..., None, :], x2[..., None])[..., 0, 0]


if hasattr(np, "matvec"):
    implements(np.matvec)(lambda x1, x2, /: np.matmul(x1, as_array(x2)[..., None])[..., 0])
    implements(np.vecmat)(lambda x1, x2, /: np.matmul(as_array(x1)[..., None, :], x2)[..., 0, :])

# Sums of products by letters.


@primitive
def contract(subscripts, *operands):
    """np.einsum of one or two operands with explicit subscripts, each letter at most once in each operand."""
    if len(operands) == 1:
        return np.einsum(subscripts, *operands)
    inputs, output = subscripts.split("->")
    first, second = inputs.split(",")
    shared = [c for c in first if c in second]
    batch, summed = [c for c in shared if c in output], [c for c in shared if c not in output]
    left, right = ([c for c in letters if c in output and c not in shared] for letters in (first, second))
    size = dict(zip(first + second, (*operands[0].shape, *operands[1].shape)))
    rows, columns, depth = (math.prod(size[c] for c in letters) for letters in (left, right, summed))
    if rows == columns == 1 or not summed:
        return np.einsum(subscripts, *operands)
    x = np.einsum(f"{first}->{''.join(batch + left + summed)}", operands[0])
    y = np.einsum(f"{second}->{''.join(batch + summed + right)}", operands[1])
    lead = [size[c] for c in batch]
    z = np.matmul(x.reshape(*lead, rows, depth), y.reshape(*lead, depth, columns))
    return np.einsum(f"{''.join(batch + left + right)}->{output}", z.reshape([size[c] for c in batch + left + right]))


@contract.defvjp_each
def _(i, out, subscripts, *operands):
    inputs, output = subscripts.split("->")
    inputs = inputs.split(",")
    k = i - 1
    rest = [output, *inputs[:k], *inputs[k + 1 :]]
    others = [*operands[:k], *operands[k + 1 :]]
    shape = operands[k].shape
    reachable = "".join(c for c in inputs[k] if any(c in r for r in rest))
    lost = tuple(j for j, c in enumerate(inputs[k]) if c not in reachable)  # summed within the operand itself
    spec = ",".join(rest) + "->" + reachable
    kept = tuple(1 if j in lost else n for j, n in enumerate(shape))

    def pullback(g):
        found = contract(spec, g, *others)
        return np.broadcast_to(np.reshape(found, kept), shape) if lost else found

    return pullback


@implements(np.einsum)
def _einsum(*operands, out=None, optimize=False, dtype=None, order="K", casting="safe"):
    if dtype is not None:
        raise TypeError("np.einsum with dtype= can't be differentiated: convert the operands with .astype")
    inputs, output, operands = _subscripts(operands)
    size = _sizes(inputs, operands)
    terms = [_simplified(letters, x, size) for letters, x in zip(inputs, operands)]
    order = np.einsum_path(
        ",".join(letters for letters, _ in terms) + "->" + output,
        *(np.broadcast_to(np.float32(0), x.shape) for _, x in terms), optimize="greedy" if len(terms) > 2 else False,
    )[0][1:] if len(terms) > 2 else [(0, 1)] * (len(terms) - 1)  # fmt: skip
    for pair in order:
        chosen = [terms.pop(i) for i in sorted(pair, reverse=True)]
        while len(chosen) > 1:
            (a, x), (b, y) = chosen.pop(), chosen.pop()
            needed = output + "".join(letters for letters, _ in terms + chosen)
            result = "".join(c for c in dict.fromkeys(a + b) if c in needed)
            chosen.append((result, contract(f"{a},{b}->{result}", x, y)))
        terms.append(chosen[0])
    ((letters, x),) = terms
    return x if letters == output else _finished(letters, x, output, size)


def _finished(letters, x, output, size):
    """The last term in the order of the output, with the axes that no operand had in full."""
    x = contract(f"{letters}->{''.join(c for c in output if c in letters)}", x)
    missing = [i for i, c in enumerate(output) if c not in letters]
    return np.expand_dims(x, missing) if missing else x


def _subscripts(operands):
    """Each operand's letters, the output's, and the operands: ellipses spelled out, the output made explicit."""
    if not isinstance(operands[0], str):
        operands = _from_lists(operands)
    text, operands = operands[0].replace(" ", ""), in_one_dtype(*operands[1:])
    inputs, arrow, output = text.partition("->")
    inputs = inputs.split(",")
    if len(inputs) != len(operands):
        raise ValueError(f"np.einsum: {text!r} names {len(inputs)} operands, but {len(operands)} were given")
    spare = [c for c in string.ascii_letters if c not in text]
    longest = 0
    for i, (letters, x) in enumerate(zip(inputs, operands)):
        n = x.ndim - len(letters.replace("...", ""))
        if n < 0 or (n and "..." not in letters):
            raise ValueError(f"np.einsum: {letters!r} doesn't fit an operand of {x.ndim} dimensions")
        inputs[i] = letters.replace("...", "".join(spare[:n][::-1]))
        longest = max(longest, n)
    ellipsis, named = "".join(spare[:longest][::-1]), "".join(inputs)
    if not arrow:
        output = ellipsis + "".join(sorted(c for c in set(named) if named.count(c) == 1 and c not in ellipsis))
    output = output.replace("...", ellipsis)
    if len(set(output)) != len(output) or not set(output) <= set(named):
        raise ValueError(f"np.einsum: the output of {text!r} must name axes of its operands, each once")
    return inputs, output, operands


def _sizes(inputs, operands):
    """The size of each letter's axis; one of length 1 broadcasts."""
    sizes: dict = {}
    for letters, x in zip(inputs, operands):
        for c, n in zip(letters, x.shape):
            sizes.setdefault(c, set()).add(n)
    for c, found in sizes.items():
        if len(found - {1}) > 1:
            raise ValueError(f"np.einsum: axis {c!r} has sizes {sorted(found)} in shapes {[x.shape for x in operands]}")
    return {c: min(found - {1}, default=1) for c, found in sizes.items()}


def _from_lists(operands):
    """einsum's other form, x, [0, 1], y, [1, 2], [0, 2], as subscripts and operands."""

    def spell(axes):
        return "".join("..." if a is Ellipsis else string.ascii_letters[int(a)] for a in axes)

    pairs = len(operands) // 2
    output = "->" + spell(operands[-1]) if len(operands) % 2 else ""
    return ",".join(spell(axes) for axes in operands[1 : 2 * pairs : 2]) + output, *operands[0 : 2 * pairs : 2]


def _simplified(letters, x, size):
    """An operand without repeated letters (diagonals taken) and without axes of length 1 that broadcast."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            i = letters.index(c)
            j = letters.index(c, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ValueError(f"np.einsum: axis {c!r} has sizes {x.shape[i]} and {x.shape[j]} in one operand")
            x = np.diagonal(x, 0, i, j)
            letters = letters[:i] + letters[i + 1 : j] + letters[j + 1 :] + c
    stretched = [i for i, c in enumerate(letters) if x.shape[i] == 1 and size[c] != 1]
    if stretched:
        x = np.squeeze(x, tuple(stretched))
        letters = "".join(c for i, c in enumerate(letters) if i not in stretched)
    return letters, x
