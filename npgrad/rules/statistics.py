"""Statistics and sampled functions, written in terms of other functions: average, cov, the nan family, diff, gradient,
trapezoid, convolve, interp, unwrap, linspace and their kin.

NaN entries that a nan function skips get no gradient; an all-NaN slice gives NaN, with NumPy's warning, and no
gradient. interp takes the piece to the right at a node of xp, and is constant outside.
"""

from __future__ import annotations

import warnings

import numpy as np

from ..primitive import differentiate, primitive
from ..variable import Variable, implements, strip
from .indexing import snapshot
from .reductions import as_array, count, in_dtype
from .shaping import astype, in_one_dtype

# Means and covariances.


@implements(np.average)
def _average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    if weights is None:
        mean = np.mean(a, axis=axis, keepdims=keepdims)
        total = np.full(mean.shape, float(count(np.shape(a), axis)), mean.dtype)
        return (mean, total) if returned else mean
    if np.shape(weights) != np.shape(a):
        axes = np.lib.array_utils.normalize_axis_tuple(axis, np.ndim(a)) if axis is not None else ()
        if np.shape(weights) != tuple(np.shape(a)[i] for i in axes) or not axes:
            raise ValueError(f"weights of shape {np.shape(weights)} don't fit axis {axis} of shape {np.shape(a)}")
        weights = np.transpose(weights, np.argsort(axes))  # in the order of a's axes
        weights = np.reshape(weights, [n if i in axes else 1 for i, n in enumerate(np.shape(a))])
    weighted = np.multiply(a, weights)
    total = np.sum(np.broadcast_to(weights, np.shape(a)), axis=axis, keepdims=keepdims, dtype=weighted.dtype)
    if np.any(total == 0):
        raise ZeroDivisionError("weights sum to zero, so there is no average")
    mean = np.sum(weighted, axis=axis, keepdims=keepdims) / total
    return (mean, total) if returned else mean


@implements(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *, dtype=None):
    x = _observations(m, rowvar)
    if y is not None:
        x = np.concatenate([x, _observations(y, rowvar)], axis=0)
    x = in_dtype(x, np.result_type(x.dtype, float) if dtype is None else dtype)
    ddof = int(not bias) if ddof is None else ddof
    fweights, aweights = (None if w is None else in_one_dtype(w, x)[0] for w in (fweights, aweights))
    weights = _observation_weights(fweights, aweights)
    if weights is None:
        freedom, centred = x.shape[1] - ddof, x - np.mean(x, axis=1, keepdims=True)
        weighted = centred
    else:
        total = np.sum(weights)
        square = ddof if aweights is None else ddof * np.sum(weights * aweights) / total
        freedom, centred = total - square, x - np.sum(x * weights, axis=1, keepdims=True) / total
        weighted = centred * weights
    if freedom <= 0:
        raise ValueError(f"np.cov has {x.shape[1]} observations, too few for ddof={ddof}")
    return np.squeeze(np.matmul(weighted, np.matrix_transpose(centred)) / freedom)


def _observations(m, rowvar):
    m = as_array(m)
    if np.ndim(m) > 2:
        raise ValueError(f"np.cov takes arrays of 1 or 2 dimensions, not {np.ndim(m)}")
    if np.ndim(m) < 2:
        return np.reshape(m, (1, -1))
    return m if rowvar else np.transpose(m)


def _observation_weights(fweights, aweights):
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return np.multiply(fweights, aweights)


@implements(np.corrcoef)
def _corrcoef(x, y=None, rowvar=True, *, dtype=None):
    c = np.cov(x, y, rowvar, dtype=dtype)
    if not c.shape:
        return c / c
    i = np.arange(c.shape[0])
    deviation = np.sqrt(c[i, i])
    return np.clip(c / deviation[:, None] / deviation[None, :], -1, 1)


# Functions that skip NaN.


def _without_nan(function, replacement):
    """A NumPy function of the array with every NaN replaced."""

    def skipping(a, axis=None, dtype=None, out=None, **keywords):
        keywords = keywords if dtype is None else {**keywords, "dtype": dtype}
        return function(np.where(np.isnan(a), replacement, a), axis=axis, **keywords)

    return skipping


implements(np.nansum)(_without_nan(np.sum, 0))
implements(np.nanprod)(_without_nan(np.prod, 1))
implements(np.nancumsum)(_without_nan(np.cumsum, 0))
implements(np.nancumprod)(_without_nan(np.cumprod, 1))


def _nan_moment(function):
    """nanmean, nanvar, nanstd: the function of what is not NaN, which replaced is kept out of the arithmetic."""

    def moment(a, axis=None, dtype=None, out=None, *args, where=True, **keywords):
        known = ~np.isnan(a) & where
        return function(np.where(known, a, 0), axis, dtype, None, *args, where=known, **keywords)

    return moment


implements(np.nanmean)(_nan_moment(np.mean))
implements(np.nanvar)(_nan_moment(np.var))
implements(np.nanstd)(_nan_moment(np.std))


def _nan_extremum(ufunc):
    def extremum(a, axis=None, out=None, keepdims=False, **keywords):
        result = ufunc.reduce(a, axis=axis, keepdims=keepdims, **keywords)
        if np.any(np.isnan(result)):
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
        return result

    return extremum


implements(np.nanmax)(_nan_extremum(np.fmax))
implements(np.nanmin)(_nan_extremum(np.fmin))

# Differences, slopes, areas.


def _along(x, axis, start, stop=None):
    """x[start:stop] along an axis."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop),)]


@implements(np.diff)
def _diff(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    if n < 0:
        raise ValueError(f"np.diff takes n differences, n = {n} must be 0 or more")
    a = as_array(a)
    parts = [as_array(end) for end in (prepend, a, append) if end is not np._NoValue]
    if n and len(parts) > 1:
        one = list(a.shape)
        one[axis] = 1
        a = np.concatenate([p if p.ndim else np.broadcast_to(p, one) for p in parts], axis=axis)
    for _ in range(n):
        a = _along(a, axis, 1) - _along(a, axis, None, -1)
    return a


@implements(np.ediff1d)
def _ediff1d(ary, to_end=None, to_begin=None):
    x = np.ravel(ary)
    parts = [to_begin, x[1:] - x[:-1], to_end]
    parts = [np.ravel(p if isinstance(p, Variable) else np.asarray(p, x.dtype)) for p in parts if p is not None]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@implements(np.trapezoid)
def _trapezoid(y, x=None, dx=1.0, axis=-1):
    if x is None:
        width = dx
    else:
        x = as_array(x)
        width = np.diff(x, axis=axis if x.ndim > 1 else -1)
        if x.ndim == 1:
            width = np.reshape(width, [-1 if i == axis % np.ndim(y) else 1 for i in range(np.ndim(y))])
    y = as_array(y)
    return np.sum(width * (_along(y, axis, 1) + _along(y, axis, None, -1)) / 2.0, axis=axis)


@implements(np.gradient)
def _gradient(f, *varargs, axis=None, edge_order=1):
    f = as_array(f)
    f = f.astype(float) if f.dtype.kind in "iub" else f
    axes = tuple(range(f.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, f.ndim)
    spacings = varargs or (1.0,)
    spacings = spacings * len(axes) if len(spacings) == 1 else spacings
    if len(spacings) != len(axes):
        raise TypeError(f"np.gradient along {len(axes)} axes got {len(spacings)} spacings: give one, or one per axis")
    if edge_order not in (1, 2):
        raise ValueError(f"np.gradient has edge_order 1 and 2, not {edge_order}")
    slopes = [_slope(f, h, d, edge_order) for d, h in zip(axes, spacings)]
    return slopes[0] if len(axes) == 1 else tuple(slopes)


def _slope(f, spacing, axis, edge_order):
    """Second-order differences along an axis, for even spacing (a number) or given coordinates."""
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            f"np.gradient with edge_order {edge_order} needs {edge_order + 1} elements along axis {axis}, not {n}"
        )
    spacing, _ = in_one_dtype(spacing, f)
    if np.ndim(spacing):
        if np.shape(spacing) != (n,):
            raise ValueError(f"np.gradient got coordinates of shape {np.shape(spacing)} along an axis of {n}")
        h = np.reshape(np.diff(spacing), [-1 if i == axis else 1 for i in range(f.ndim)])
    else:
        h = np.broadcast_to(spacing, [n - 1 if i == axis else 1 for i in range(f.ndim)])
    h = h if h.dtype == f.dtype else astype(h, f.dtype)
    rise = np.diff(f, axis=axis) / h
    left, right = _along(h, axis, None, -1), _along(h, axis, 1)
    first, last = _along(rise, axis, 0, 1), _along(rise, axis, -1)
    middle = (right * _along(rise, axis, None, -1) + left * _along(rise, axis, 1)) / (left + right)
    if edge_order == 2:  # the parabola through three points
        bend = np.diff(rise, axis=axis) / (left + right)
        first = first - _along(h, axis, 0, 1) * _along(bend, axis, 0, 1)
        last = last + _along(h, axis, -1) * _along(bend, axis, -1)
    return np.concatenate([first, middle, last], axis=axis)


# Convolution, interpolation, phases.


@primitive
def convolution(x, y):
    """np.convolve(x, y), in full."""
    return np.convolve(x, y)


convolution.defvjp(
    lambda out, x, y: lambda g: convolution(g, y[::-1])[y.size - 1 : out.size],
    lambda out, x, y: lambda g: convolution(g, x[::-1])[x.size - 1 : out.size],
)


@implements(np.convolve)
def _convolve(a, v, mode="full"):
    a, v = map(as_array, (a, v))
    return _window(convolution(np.ravel(a), np.ravel(v)), a.size, v.size, mode)


@implements(np.correlate)
def _correlate(a, v, mode="valid"):
    a, v = map(as_array, (a, v))
    full = convolution(np.ravel(a), np.ravel(v)[::-1])
    if a.size < v.size:  # NumPy exchanges them and turns the result round, which shows where "same" is off centre
        return _window(full[::-1], a.size, v.size, mode)[::-1]
    return _window(full, a.size, v.size, mode)


def _window(full, m, n, mode):
    """The part of a full convolution of m with n elements that `mode` keeps."""
    short, long = min(m, n), max(m, n)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be 'full', 'same' or 'valid', not {mode!r}")
    if mode == "full":
        return full
    start, size = (short - 1, long - short + 1) if mode == "valid" else ((short - 1) // 2, long)
    return full[start : start + size]


@implements(np.interp)
def _interp(x, xp, fp, left=None, right=None, period=None):
    x, xp, fp = in_one_dtype(x, xp, fp)
    if xp.ndim != 1 or xp.shape != fp.shape or not xp.size:
        raise ValueError(f"np.interp needs xp and fp to be vectors of one length, not of shapes {xp.shape}, {fp.shape}")
    if period is not None:
        x, xp = np.remainder(x, abs(period)), np.remainder(xp, abs(period))
        order = np.argsort(strip(xp))
        xp, fp = xp[order], fp[order]
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
        left = right = None
    plain, nodes = np.asarray(strip(x)), strip(xp)
    i = np.clip(np.searchsorted(nodes, plain, side="right") - 1, 0, max(nodes.size - 2, 0))
    inside = ~((plain < nodes[0]) | (plain > nodes[-1]))  # NaN too, to stay NaN
    if nodes.size == 1:
        result = fp[0]
    else:
        result = fp[i] + (fp[i + 1] - fp[i]) / (xp[i + 1] - xp[i]) * (np.where(inside, x, nodes[i]) - xp[i])
    result = np.where(plain < nodes[0], fp[0] if left is None else left, result)
    result = np.where(plain > nodes[-1], fp[-1] if right is None else right, result)
    return result if result.dtype == float else astype(result, float)  # as NumPy has it, whatever came in


def _unwrap(out, p, discont=None, axis=-1, *, period=2 * np.pi):
    return lambda g: g


differentiate(np.unwrap, _unwrap)


@implements(np.bincount)
def _bincount(x, /, weights=None, minlength=0):
    return binned(strip(x), weights, minlength)


@primitive
def binned(x, weights, minlength):
    """The sum of the weights of each integer in x."""
    return np.bincount(x, weights, minlength)


def _weights(out, x, weights, minlength):
    x = snapshot(x)
    return lambda g: g[x]


binned.defvjp(None, _weights)

# Sequences of numbers between two ends.


@implements(np.linspace)
def _linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    start, stop = (end if isinstance(end, (int, float)) else as_array(end) for end in (start, stop))
    pieces = num - 1 if endpoint else num
    step = (stop - start) / pieces if pieces > 0 else (stop - start) * np.nan
    places = np.reshape(np.arange(num, dtype=step.dtype), (-1,) + (1,) * step.ndim) / max(pieces, 1)
    result = np.moveaxis(start * (1 - places) + stop * places, 0, axis)
    result = in_dtype(result, dtype)
    return (result, step) if retstep else result


@implements(np.logspace)
def _logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    result = np.power(base, np.linspace(start, stop, num, endpoint, axis=axis))
    return in_dtype(result, dtype)


@implements(np.geomspace)
def _geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    start, stop = in_one_dtype(start, stop)
    sign = np.sign(start)
    result = np.exp(np.linspace(np.log(start * sign), np.log(stop * sign), num, endpoint, axis=axis))
    result = result * (np.expand_dims(sign, axis) if sign.ndim else sign)
    return in_dtype(result, np.result_type(result.dtype, float) if dtype is None else dtype)
