"""Linear algebra: inverses, decompositions, determinants and norms, of one matrix or a stack of them.

Functions of several results (eigh, svd, qr) are one primitive whose result holds them all, taken apart by slices, so
that derivatives of any order come out right. Conventions:

- cholesky, eigh and eigvalsh read one triangle of their matrix, and only that triangle has a gradient: the derivative
  of the function that NumPy computes. (For a matrix made symmetric beforehand, x @ x.T, it is the usual one.)
- A norm has slope 0 at 0, taken for constant: norm(x)**2 has second derivative 0 there, np.sum(x * x) the right
  one; det has the gradient of its polynomial at singular matrices too.
- Eigenvectors and singular vectors of equal values are not determined: what only they would contribute is 0, so
  that second derivatives of equal values lack it: of np.sum(svdvals(x)**2), say, which is np.sum(x * x).

The formulas: Giles, "An extended collection of matrix derivative results" (2008); Murray, "Differentiation of the
Cholesky decomposition" (2016); Townsend, "Differentiating the singular value decomposition" (2016); Golub & Pereyra,
"The differentiation of pseudo-inverses" (1973); Walter & Lehmann, "Algorithmic differentiation of linear algebra
functions" (2010).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..primitive import differentiate, primitive
from ..variable import implements, nondifferentiable, strip
from .indexing import scatter
from .products import matmul
from .shaping import as_array

_unset = np._NoValue


def _t(x):
    return np.matrix_transpose(x)


def _diagonal_matrix(d):
    return d[..., None] * np.eye(d.shape[-1], dtype=d.dtype)


# Inverses and systems of equations.


def _inv(out, a):
    return lambda g: -matmul(matmul(_t(out), g), _t(out))


differentiate(np.linalg.inv, _inv)


@primitive
def solution(a, b):
    """The x of a @ x = b, for matrices b."""
    return np.linalg.solve(a, b)


solution.defvjp(
    lambda out, a, b: lambda g: -matmul(solution(_t(a), g), _t(out)),
    lambda out, a, b: lambda g: solution(_t(a), g),
)


@implements(np.linalg.solve)
def _solve(a, b):
    a, b = as_array(a), as_array(b)
    return solution(a, b[:, None])[..., 0] if b.ndim == 1 else solution(a, b)


@implements(np.linalg.tensorinv)
def _tensorinv(a, ind=2):
    if ind <= 0:
        raise ValueError(f"np.linalg.tensorinv with ind={ind}: it must be positive")
    n = math.prod(a.shape[ind:])
    return np.reshape(np.linalg.inv(np.reshape(a, (n, -1))), a.shape[ind:] + a.shape[:ind])


@implements(np.linalg.tensorsolve)
def _tensorsolve(a, b, axes=None):
    a, b = as_array(a), as_array(b)
    if axes is not None:
        last = normalize_axis_tuple(axes, a.ndim)
        a = np.transpose(a, [*(i for i in range(a.ndim) if i not in last), *last])
    shape = a.shape[b.ndim :]
    return np.reshape(_solve(np.reshape(a, (b.size, math.prod(shape))), np.ravel(b)), shape)


@primitive
def pseudo_inverse(a, options):
    """np.linalg.pinv, among matrices of the same rank."""
    return np.linalg.pinv(a, **options)


@pseudo_inverse.defvjp
def _pseudo_inverse(out, a, options):
    def pullback(g):
        p, gt = out, _t(g)
        rows, columns = matmul(p, a), matmul(a, p)
        first = matmul(gt - matmul(columns, gt), matmul(p, _t(p)))
        second = matmul(matmul(_t(p), p), gt - matmul(gt, rows))
        return first + second - matmul(matmul(_t(p), g), _t(p))

    return pullback


@implements(np.linalg.pinv)
def _pinv(a, rcond=None, hermitian=False, *, rtol=_unset):
    options = {"rcond": rcond} if rtol is _unset else {"rcond": rcond, "rtol": rtol}
    return pseudo_inverse(_symmetric(a) if hermitian else a, options)


@implements(np.linalg.matrix_power)
def _matrix_power(a, n):
    if n == 0:
        return np.linalg.matrix_power(strip(a), 0)
    a, n, result = (a, n, None) if n > 0 else (np.linalg.inv(a), -n, None)
    while n:
        if n % 2:
            result = a if result is None else np.matmul(result, a)
        n //= 2
        a = np.matmul(a, a) if n else a
    return result


# Determinants.


@primitive
def cofactors(a):
    """The matrix of the cofactors of a, det(a)·inv(a)ᵀ wherever that exists."""
    u, s, vh = np.linalg.svd(a)
    others = np.where(np.eye(a.shape[-1], dtype=bool), 1, s[..., None, :])
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return sign[..., None, None] * ((u * np.prod(others, axis=-1)[..., None, :]) @ vh)


@cofactors.defvjp
def _cofactors(out, a):
    n = a.shape[-1]
    keep = np.array([[j for j in range(n) if j != i] for i in range(n)], np.intp).reshape(n, n - 1)
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n)).astype(a.dtype)

    def pullback(g):  # each cofactor is the signed determinant of a minor
        minors = (..., keep[:, None, :, None], keep[None, :, None, :])
        weighted = (g * signs)[..., None, None] * cofactors(a[minors])
        return scatter(weighted, minors, a.shape)

    return pullback


def _det(out, a):
    def pullback(g):
        if not a.size:
            return np.zeros(a.shape, a.dtype)
        if np.any(np.linalg.cond(strip(a), 1) > np.finfo(a.dtype).eps ** -0.75):
            return g[..., None, None] * cofactors(a)
        return (g * out)[..., None, None] * _t(np.linalg.inv(a))

    return pullback


differentiate(np.linalg.det, _det)


@primitive
def log_abs_det(a):
    """The logarithm of the determinant's magnitude, np.linalg.slogdet(a)[1]."""
    return np.linalg.slogdet(a)[1]


log_abs_det.defvjp(lambda out, a: lambda g: g[..., None, None] * _t(np.linalg.inv(a)))
_SlogdetResult = type(np.linalg.slogdet(np.eye(1)))


@implements(np.linalg.slogdet)
def _slogdet(a):
    return _SlogdetResult(np.linalg.slogdet(strip(a))[0], log_abs_det(a))


# Decompositions of symmetric matrices.


def _symmetric(a, upper=False):
    """The symmetric matrix that one triangle of a stands for."""
    if np.shape(a)[-2:-1] != np.shape(a)[-1:]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return np.triu(a) + _t(np.triu(a, 1)) if upper else np.tril(a) + _t(np.tril(a, -1))


@primitive
def lower_factor(a):
    """np.linalg.cholesky of a matrix known to be symmetric."""
    return np.linalg.cholesky(a)


@lower_factor.defvjp
def _lower_factor(out, a):
    def pullback(g):
        middle = np.tril(matmul(_t(out), g))
        middle = (middle + _t(np.tril(middle, -1))) / 2
        inverse = np.linalg.inv(out)
        return matmul(matmul(_t(inverse), middle), inverse)

    return pullback


@implements(np.linalg.cholesky)
def _cholesky(a, /, *, upper=False):
    lower = lower_factor(_symmetric(a, upper))
    return _t(lower) if upper else lower


def _inverse_gaps(values):
    """1 / (values[j] - values[i]) for unequal values, else 0."""
    gaps = values[..., None, :] - values[..., :, None]
    scale = np.max(np.abs(strip(values)), axis=-1, initial=0)[..., None, None]
    equal = np.abs(strip(gaps)) <= scale * np.finfo(values.dtype).eps * values.shape[-1]
    return np.where(equal, 0, 1 / np.where(equal, 1, gaps))


@primitive
def eigen(a):
    """The eigenvalues, as the first row, above the eigenvectors of a symmetric matrix: (..., n + 1, n)."""
    values, vectors = np.linalg.eigh(a)
    return np.concatenate([values[..., None, :], vectors], axis=-2)


@eigen.defvjp
def _eigen(out, a):
    def pullback(g):
        values, vectors = out[..., 0, :], out[..., 1:, :]
        turned = _inverse_gaps(values) * matmul(_t(vectors), g[..., 1:, :])
        return matmul(matmul(vectors, _diagonal_matrix(g[..., 0, :]) + turned), _t(vectors))

    return pullback


def _checked_triangle(UPLO):
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"UPLO={UPLO!r} must be 'L' or 'U'")
    return UPLO.upper() == "U"


_EighResult = type(np.linalg.eigh(np.eye(1)))


@implements(np.linalg.eigh)
def _eigh(a, UPLO="L"):
    packed = eigen(_symmetric(a, _checked_triangle(UPLO)))
    return _EighResult(packed[..., 0, :], packed[..., 1:, :])


implements(np.linalg.eigvalsh)(lambda a, UPLO="L": _eigh(a, UPLO)[0])

# Singular values.


@primitive
def singular(a):
    """u, s and vhᵀ of the reduced SVD of a (..., m, n), in rows (..., m + 1 + n, min(m, n))."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.concatenate([u, s[..., None, :], _t(vh)], axis=-2)


@singular.defvjp
def _singular(out, a):
    m, n = a.shape[-2:]

    def pullback(g):
        (u, s, v), (gu, gs, gv) = ((x[..., :m, :], x[..., m, :], x[..., m + 1 :, :]) for x in (out, g))
        zero = strip(s) == 0
        gaps = _inverse_gaps(s * s)
        left, right = matmul(_t(u), gu), matmul(_t(v), gv)
        core = gaps * (left - _t(left)) * s[..., None, :] + s[..., :, None] * (gaps * (right - _t(right)))
        core = core + _diagonal_matrix(np.where(zero, 0, gs))
        inverse = np.where(zero, 0, 1 / np.where(zero, 1, s))[..., None, :]
        result = matmul(matmul(u, core), _t(v))
        if m > n:
            result = result + matmul((gu - matmul(u, left)) * inverse, _t(v))
        if n > m:
            result = result + matmul(u * inverse, _t(gv - matmul(v, right)))
        return result

    return pullback


_SVDResult = type(np.linalg.svd(np.eye(1)))


@implements(np.linalg.svd)
def _svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    m, n = a.shape[-2:]
    if compute_uv and hermitian:
        raise TypeError(
            "np.linalg.svd with hermitian=True can't be differentiated: leave it out, or use np.linalg.eigh"
        )
    if compute_uv and full_matrices and m != n:
        raise TypeError(
            f"np.linalg.svd of matrices of {m} x {n} has no derivative for the vectors that full_matrices=True adds: "
            "use full_matrices=False"
        )
    packed = singular(_symmetric(a) if hermitian else a)
    u, s, v = packed[..., :m, :], packed[..., m, :], packed[..., m + 1 :, :]
    return _SVDResult(u, s, _t(v)) if compute_uv else s


implements(np.linalg.svdvals)(lambda x, /: _svd(x, compute_uv=False))


@implements(np.linalg.cond)
def _cond(x, p=None):
    if p in (None, 2, -2):
        s = np.linalg.svdvals(x)
        return s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    return np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(np.linalg.inv(x), p, (-2, -1))


# Orthogonal factors.


@primitive
def orthogonal(a):
    """q above rᵀ of the reduced QR decomposition of a (..., m, n) with m >= n: (..., m + n, n)."""
    q, r = np.linalg.qr(a)
    return np.concatenate([q, _t(r)], axis=-2)


@orthogonal.defvjp
def _orthogonal(out, a):
    m = a.shape[-2]

    def pullback(g):
        q, r, gq, gr = out[..., :m, :], _t(out[..., m:, :]), g[..., :m, :], _t(g[..., m:, :])
        middle = matmul(r, _t(gr)) - matmul(_t(gq), q)
        middle = np.tril(middle) + _t(np.tril(middle, -1))
        return _t(solution(r, _t(gq + matmul(q, middle))))

    return pullback


_QRResult = type(np.linalg.qr(np.eye(1)))


@implements(np.linalg.qr)
def _qr(a, mode="reduced"):
    m, n = a.shape[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and m <= n):
        raise TypeError(
            f"np.linalg.qr of {m} x {n} with mode={mode!r} can't be differentiated: use mode='reduced' or 'r'"
        )
    k = min(m, n)
    packed = orthogonal(a[..., :, :k])
    q, r = packed[..., :m, :], np.triu(_t(packed[..., m:, :]))
    if n > k:
        r = np.concatenate([r, matmul(_t(q), a[..., :, k:])], axis=-1)
    return r if mode == "r" else _QRResult(q, r)


# Norms.


@primitive
def length(x, axis, keepdims):
    """The root of the sum of squares over axes."""
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


@length.defvjp
def _length(out, x, axis, keepdims):
    kept = [1 if i in axis else n for i, n in enumerate(x.shape)]
    inverse = np.where(out == 0, 0, 1 / np.where(out == 0, 1, out))
    return lambda g: np.reshape(g * inverse, kept) * x


@primitive
def power_norm(x, p, axis, keepdims):
    """The p-th root of the sum of |x|**p over axes."""
    with np.errstate(divide="ignore"):
        return np.sum(np.abs(x) ** p, axis=axis, keepdims=keepdims) ** (1 / p)


@power_norm.defvjp
def _power_norm(out, x, p, axis, keepdims):
    kept = [1 if i in axis else n for i, n in enumerate(x.shape)]
    zero = (x == 0) | np.reshape(out == 0, kept)
    ratio = np.where(zero, 1, np.abs(x)) / np.reshape(np.where(out == 0, 1, out), kept)
    slope = np.where(zero, 0, np.sign(x) * ratio ** (p - 1))
    return lambda g: np.reshape(g, kept) * slope


def _norm_over(x, p, axis, keepdims):
    """The vector norm of order p over a tuple of axes taken together."""
    if p is None or p == 2:
        return length(x, axis, keepdims)
    if p == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims)
    if p == -np.inf:
        return np.min(np.abs(x), axis=axis, keepdims=keepdims)
    if p == 0:
        return np.sum(strip(x) != 0, axis=axis, keepdims=keepdims).astype(x.dtype)
    if p == 1:
        return np.sum(np.abs(x), axis=axis, keepdims=keepdims)
    if isinstance(p, str):
        raise ValueError(f"{p!r} is a norm of matrices: give two axes")
    return power_norm(x, p, axis, keepdims)


def _matrix_norm(x, p, axis, keepdims):
    """The norm of order p of the matrices that lie in two axes."""
    row, column = axis
    if p is None or p == "fro":
        return length(x, axis, keepdims)
    if p in (1, -1, np.inf, -np.inf):
        inner, outer = (row, column) if abs(p) == 1 else (column, row)
        sums = np.sum(np.abs(x), axis=inner, keepdims=True)
        found = (np.max if p > 0 else np.min)(sums, axis=outer, keepdims=True)
    elif p in (2, -2, "nuc"):
        s = np.linalg.svdvals(np.moveaxis(x, axis, (-2, -1)))
        found = np.sum(s, axis=-1) if p == "nuc" else (np.max if p > 0 else np.min)(s, axis=-1)
        found = np.expand_dims(found, tuple(sorted(axis)))
    else:
        raise ValueError(f"there is no norm of order {p!r} for matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    return found if keepdims else np.squeeze(found, axis)


@implements(np.linalg.norm)
def _norm(x, ord=None, axis=None, keepdims=False):
    if axis is None:
        if ord is None:
            return length(x, tuple(range(x.ndim)), keepdims)
        if x.ndim not in (1, 2):
            raise ValueError(f"np.linalg.norm of order {ord!r} for {x.ndim} dimensions needs an axis")
        axis = tuple(range(x.ndim))
    axis = normalize_axis_tuple(axis, x.ndim)
    if len(axis) > 2:
        raise ValueError(f"np.linalg.norm takes one axis or two, not {len(axis)}")
    return (_matrix_norm if len(axis) == 2 else _norm_over)(x, ord, axis, keepdims)


@implements(np.linalg.matrix_norm)
def _array_matrix_norm(x, /, *, keepdims=False, ord="fro"):
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


@implements(np.linalg.vector_norm)
def _array_vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    axis = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return _norm_over(x, ord, axis, keepdims)


nondifferentiable(np.linalg.matrix_rank)
