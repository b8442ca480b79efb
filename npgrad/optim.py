"""Optimisers, gradient clipping and learning-rate schedules.

An optimiser is the one thing in training that has state. It copies the parameters once, into one flat vector per
dtype and weight decay, and from then on owns them: `params` is the tree of views into it, and `update(gradients)`
changes those arrays in place, block by block so that a block's parameters, gradients and moments meet in the cache.

    params, rate = model.init(seed=0), optim.cosine_schedule(3e-3, total=1000, warmup=50)
    optimizer = optim.AdamW(params, rate, weight_decay=0.1)
    for batch in batches:
        loss, gradients = ng.value_and_grad(model.loss)(params, batch)
        gradients, norm = optim.clip_by_global_norm(gradients, 1.0)
        params = optimizer.update(gradients)

Parameters of float16 have moments and arithmetic in float32, and each new value is rounded once. Steps of less than
half its last digit are lost all the same, so it is better to train float32 copies of them.

Clipping and schedules are plain functions: clipping returns new trees, a schedule is a function from the step to the
rate, and any function will do.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple, Never

import numpy as np

from . import tree as trees

BLOCK = 1 << 16
"""Elements updated at a time: few enough that all a block needs stays in the cache, many enough to hide overhead."""

Rate = float | Callable[[int], float]
Decay = float | Callable[[str, np.ndarray], float]


class _Group(NamedTuple):
    """The parameters of one dtype and weight decay: they lie in one buffer, one after another."""

    dtype: np.dtype
    decay: float

    @property
    def working(self) -> np.dtype:
        """The dtype of moments and arithmetic: that of the parameters, but no narrower than float32."""
        return np.promote_types(self.dtype, np.float32)


class _Leaf(NamedTuple):
    """Where a parameter lives: elements [start, stop) of the buffers of its group."""

    group: _Group
    start: int
    stop: int
    shape: tuple[int, ...]


class _Optimizer(abc.ABC):
    """Owns the parameters and the moments; a subclass says how one block of them moves."""

    def __init__(self, params: Any, learning_rate: Rate, weight_decay: Decay, moments: tuple[str, ...]):
        self.learning_rate = learning_rate
        self.step = 0
        named = [(path, _floats(path, p)) for path, p in trees.items(params, "params")]
        self._leaves = _layout([(p, _Group(p.dtype, _decay(weight_decay, path, p))) for path, p in named])
        ends = {leaf.group: leaf.stop for leaf in self._leaves}  # the last leaf of a group ends where its buffers do
        self._order = [i for group in ends for i, leaf in enumerate(self._leaves) if leaf.group is group]
        self._buffers: dict[str, dict[_Group, np.ndarray]] = {name: {} for name in ("params", *moments)}
        for group, end in ends.items():
            for by_group, row in zip(self._buffers.values(), _zeros(len(self._buffers), end, group.working)):
                by_group[group] = row
            if group.dtype != group.working:
                self._buffers["params"][group] = np.zeros(end, group.dtype)
        self._spare = {group.working: _zeros(2, BLOCK, group.working) for group in ends}  # for `update` to work in
        self._counts = [0] * len(named)
        for view, (_, p) in zip(self._views("params"), named):
            view[...] = p
        self.params = trees.unflatten(params, self._views("params"))
        self._rate()

    def update(self, gradients: Any, *surplus: Never) -> Any:
        """Take one step, in place, and return `params`: the same arrays each time, with their new values.

        `gradients` is a tree like `params`, left as it is. Where it has None, for a leaf or a whole subtree, parameters
        and moments stay as they are. ValueError, naming the path, where structure or shapes differ, TypeError for a
        gradient that is not of real numbers; in both cases nothing has changed.
        """
        if surplus:
            raise TypeError("update takes the gradients alone: its parameters are those that the optimiser was made of")
        found: list[Any] = _gradients(self.params, gradients, "gradients")
        rate = self._rate()
        alike = [(id(leaf.group), count, g is None) for leaf, count, g in zip(self._leaves, self._counts, found)]
        for (_, count, missing), run in groupby(self._order, alike.__getitem__):  # neighbours in the same buffers
            if missing:
                continue
            chosen = list(run)
            group, start, _, _ = self._leaves[chosen[0]]
            gathered, scratch = self._spare[group.working]
            move = self._mover(rate, count, group, scratch)
            buffers = [by_group[group] for by_group in self._buffers.values()]
            for g in _blocks([found[i] for i in chosen], gathered):
                p, *moments = [buffer[start : start + len(g)] for buffer in buffers]
                wide = p.astype(group.working, copy=False)
                move(g, wide, *moments)
                if wide is not p:
                    p[...] = wide
                start += len(g)
        self._counts = [count + (g is not None) for count, g in zip(self._counts, found)]
        self.step += 1
        return self.params

    def state(self) -> dict[str, Any]:
        """All that a later run needs to go on exactly: parameters, moments and counts, a tree of new arrays."""
        copies = {name: self._tree(view.copy() for view in self._views(name)) for name in self._buffers}
        return {"step": np.array(self.step), "counts": self._tree(map(np.array, self._counts)), **copies}

    def restore(self, state: dict[str, Any]) -> Any:
        """Go on from a `state()` of an optimiser of the same kind and parameters; returns `params`.

        ValueError, naming the path, where structure, shape or dtype differ; then nothing has changed.
        """
        state = trees.map_with_path(_like, self.state(), state, path="state")
        self.step, self._counts = int(state["step"]), [int(count) for count in trees.leaves(state["counts"])]
        for name in self._buffers:
            for view, saved in zip(self._views(name), trees.leaves(state[name]), strict=True):
                view[...] = saved
        return self.params

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        vars(self).update(attributes)
        self.params = self._tree(self._views("params"))  # of its own buffers: a copy's arrays are views no more

    def _tree(self, leaves: Iterable[np.ndarray]) -> Any:
        return trees.unflatten(self.params, leaves)

    def _views(self, name: str) -> list[np.ndarray]:
        return [self._buffers[name][f.group][f.start : f.stop].reshape(f.shape) for f in self._leaves]

    def _rate(self) -> float:
        rate = self.learning_rate(self.step) if callable(self.learning_rate) else self.learning_rate
        return _number("the learning rate", rate)

    @abc.abstractmethod
    def _mover(self, rate: float, count: int, group: _Group, scratch: np.ndarray) -> Callable[..., None]:
        """The function that moves a block: `move(g, params, *moments)`, in place but for g, in `group.working`.

        scratch has room for a block of that dtype.
        """


class SGD(_Optimizer):
    r"""Stochastic gradient descent, with momentum and Nesterov's variant.

    With g the gradient plus weight_decay·p: v ← g at the first step, momentum·v + (1 − dampening)·g later, and
    p ← p − rate·v; with `nesterov` p ← p − rate·(g + momentum·v). Without momentum p ← p − rate·g.

    `params` is a tree of float arrays, copied; `learning_rate` a number or a function of the step (0 at first);
    `weight_decay` a number, or a function of a leaf's path and array that gives one. ValueError if one is out of range.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013), section 2;
    the rate multiplies v, as in PyTorch.

    >>> sgd = SGD({"w": np.array([1.0, 2.0])}, 0.1, momentum=0.9)
    >>> sgd.update({"w": np.array([10.0, 0.0])})
    {'w': array([0., 2.])}
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: Decay = 0.0,
    ):
        self.momentum = _number("momentum", momentum, 1)
        self.dampening = _number("dampening", dampening, 1)
        self.nesterov = nesterov
        if nesterov and (momentum == 0 or dampening != 0):
            raise ValueError(f"nesterov needs momentum > 0 and no dampening, not {momentum} and {dampening}")
        super().__init__(params, learning_rate, weight_decay, ("velocity",) if momentum else ())

    def _mover(self, rate: float, count: int, group: _Group, scratch: np.ndarray) -> Callable[..., None]:
        momentum, share = self.momentum, 1 - self.dampening if count else 1.0

        def move(g: np.ndarray, p: np.ndarray, v: np.ndarray | None = None) -> None:
            if group.decay:
                g = g + group.decay * p
            if v is not None:
                v *= momentum
                v += share * g
                g = g + momentum * v if self.nesterov else v
            p -= rate * g

        return move


class AdamW(_Optimizer):
    r"""Adam with decoupled weight decay.

    At a leaf's t-th update p ← p − rate·(weight_decay·p + m/(√v + eps)), where m and v are the means of its gradients
    and of their squares, weighted with β₁ᵏ and β₂ᵏ, k updates ago. The state holds the weighted sums, Σ βᵏ·g: dividing
    by the sum of the weights, (1 − βᵗ)/(1 − β), is what the paper calls the correction of the bias.

    `params` is a tree of float arrays, copied; `learning_rate` a number or a function of the step (0 at first);
    `weight_decay` a number, or a function of a leaf's path and array that gives one: with
    `lambda path, p: 0.1 * (p.ndim > 1)` norms and biases don't decay. 0 gives Adam. ValueError if one is out of range.

    Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, with the decay
    multiplied by the rate; Kingma & Ba, "Adam" (2015), algorithm 1.

    >>> adamw = AdamW([np.array([1.0, -2.0])], 0.1, weight_decay=0.5)
    >>> adamw.update([np.array([3.0, 0.0])])
    [array([ 0.85, -1.9 ])]
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: Decay = 0.01,
    ):
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"AdamW needs two betas, such as (0.9, 0.999), not {betas!r}")
        self.betas = tuple(_number(f"betas[{i}]", beta, 1) for i, beta in enumerate(betas))
        self.eps = _number("eps", eps)
        super().__init__(params, learning_rate, weight_decay, ("sums", "squares"))
        for group in self._buffers["params"]:
            if np.array(self.eps, group.working) == 0:
                raise ValueError(f"AdamW needs a positive eps in {group.working} (0/0 otherwise), not {eps}")

    def _mover(self, rate: float, count: int, group: _Group, scratch: np.ndarray) -> Callable[..., None]:
        weights, square_weights = ((1 - beta ** (count + 1)) / (1 - beta) for beta in self.betas)
        scale = math.sqrt(square_weights)  # taken out of the root: one operation less for each block
        numbers = *self.betas, self.eps * scale, rate * scale / weights, 1 - rate * group.decay
        beta1, beta2, eps, step, keep = (np.array(x, group.working) for x in numbers)  # cheaper operands than floats

        def move(g: np.ndarray, p: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> None:
            t = scratch[: len(g)]
            sums *= beta1
            sums += g
            np.square(g, out=t)
            squares *= beta2
            squares += t
            np.sqrt(squares, out=t)
            t += eps
            np.divide(sums, t, out=t)
            t *= step
            if group.decay:
                p *= keep
            p -= t

        return move


def clip_by_global_norm(gradients: Any, max_norm: float) -> tuple[Any, float]:
    """The tree scaled so that its norm is at most `max_norm`, and the norm before, over all its leaves together.

    g·min(1, max_norm/(norm + 1e-6)), with norm = √Σg². Float leaves of any shape and dtype, None is passed over; a tree
    that is small enough comes back as it is. The norm neither overflows nor underflows where it can be represented.
    ValueError, naming leaf and index, if there is an infinity or a NaN: scaling would spread it to every parameter; and
    if the norm can't be represented.

    Source: Pascanu et al., "On the difficulty of training recurrent neural networks" (2013), algorithm 1.

    >>> clip_by_global_norm({"w": np.array([3.0, 0.0]), "b": np.array(4.0)}, 10.0)[1]
    5.0
    """
    max_norm = _number("max_norm", max_norm)
    norm = _global_norm(gradients)
    factor = max_norm / (norm + 1e-6)
    if factor >= 1:
        return gradients, norm
    return trees.map(lambda g: np.multiply(g, np.asarray(factor, np.asarray(g).dtype)), gradients), norm


def clip_by_value(gradients: Any, limit: float) -> Any:
    """The tree with every element moved into [−limit, limit]; NaN stays NaN, None is passed over.

    >>> clip_by_value([np.array([-3.0, 0.2])], 0.5)
    [array([-0.5,  0.2])]
    """
    limit = _number("limit", limit)
    with np.errstate(over="ignore"):  # a limit beyond float16's largest number is none
        return trees.map_with_path(
            lambda path, g: np.clip(_floats(path, g), -limit, limit), gradients, path="gradients"
        )


def constant_schedule(rate: float, *, warmup: int = 0) -> Callable[[int], float]:
    """A rate that rises from 0 in `warmup` equal steps, rate·step/warmup, and stays.

    >>> [constant_schedule(0.1, warmup=2)(step) for step in range(4)]
    [0.0, 0.05, 0.1, 0.1]
    """
    return _schedule(rate, warmup, None, rate, lambda _: 1.0)


def linear_schedule(rate: float, total: int, *, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """A rate that rises for `warmup` steps, falls in a straight line to `final` at step `total`, and stays there.

    >>> [linear_schedule(1.0, 6, warmup=2)(step) for step in range(8)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """
    return _schedule(rate, warmup, total, final, lambda progress: 1 - progress)


def cosine_schedule(rate: float, total: int, *, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """A rate that rises for `warmup` steps, falls along half a cosine to `final` at step `total`, and stays there.

    final + (rate − final)·(1 + cos(π·(step − warmup)/(total − warmup)))/2 between the two.
    Source: Loshchilov & Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (2017), equation 5.

    >>> [round(cosine_schedule(1.0, 4, final=0.5)(step), 3) for step in range(6)]
    [1.0, 0.927, 0.75, 0.573, 0.5, 0.5]
    """
    return _schedule(rate, warmup, total, final, lambda progress: (1 + math.cos(math.pi * progress)) / 2)


def _schedule(rate: float, warmup: int, total: int | None, final: float, shape: Callable[[float], float]) -> Callable:
    """Warm-up, then final + (rate - final) * shape(progress), with progress from 0 to 1, held at `total`."""
    rate, final = _number("the learning rate", rate), _number("the final rate", final)
    for name, steps in (("warmup", warmup), ("total", warmup if total is None else total)):
        _check_number(name, steps)
    if not 0 <= warmup < (math.inf if total is None else total):
        raise ValueError(f"a schedule needs 0 <= warmup < total, not a warmup of {warmup} and a total of {total}")

    def at(step: int) -> float:
        if step < 0:
            raise ValueError(f"a schedule starts at step 0, so there is no rate at {step}")
        if step < warmup:
            return rate * step / warmup
        progress = 0.0 if total is None else min(1.0, (step - warmup) / (total - warmup))
        return final + (rate - final) * shape(progress)

    return at


def _layout(arrays: list[tuple[np.ndarray, _Group]]) -> list[_Leaf]:
    """A place for each array in the buffers of its group, one after another."""
    groups: dict[_Group, _Group] = {}
    ends: dict[_Group, int] = {}
    leaves = []
    for p, group in arrays:
        group, start = groups.setdefault(group, group), ends.get(group, 0)  # one object for equal groups
        ends[group] = start + p.size
        leaves.append(_Leaf(group, start, ends[group], p.shape))
    return leaves


def _zeros(rows: int, length: int, dtype: np.dtype) -> np.ndarray:
    """Zeros (rows, length) in one piece of memory, each row from the start of a cache line: quicker by a tenth."""
    line = 64 // dtype.itemsize
    padded = length + -length % line
    whole = np.zeros(rows * padded + line, dtype)
    first = -(whole.__array_interface__["data"][0] // dtype.itemsize) % line
    return whole[first : first + rows * padded].reshape(rows, padded)[:, :length]


def _gradients(params: Any, gradients: Any, path: str) -> list[np.ndarray | None]:
    """The gradient of each leaf of params, in order: None where the gradients have None in its or a parent's place."""
    if gradients is None:
        return [None for _ in trees.leaves(params)]
    if not trees.is_node(params) and not trees.is_node(gradients):
        g = _floats(path, gradients)
        if g.shape != params.shape:
            raise ValueError(f"{path} has shape {g.shape}, but its parameter has shape {params.shape}")
        return [g]
    if not _alike(params, gradients):
        raise ValueError(_difference(params, gradients, path))
    found: list[np.ndarray | None] = []
    for key, p in trees._entries(params):
        g = gradients[key]
        if type(p) is type(g) is np.ndarray and g.dtype.kind == "f" and g.shape == p.shape:
            found.append(g)
        else:
            found += _gradients(p, g, path + trees._suffix(params, key))
    return found


def _difference(params: Any, gradients: Any, path: str) -> str:
    """What is wrong with a node of the gradients, and what to do."""
    if isinstance(params, dict) and isinstance(gradients, dict):
        pairs = (("lacks", params, gradients), ("has besides", gradients, params))
        different = [(verb, [trees._suffix(a, key) for key in a if key not in b]) for verb, a, b in pairs]
        found = " and ".join(f"{verb} {', '.join(names)}" for verb, names in different if names)
        return f"{path} must have the parameters' keys, but {found}: give None for what is not to move"
    if type(gradients) is tuple and len(gradients) == 2 and any(np.isscalar(part) for part in gradients):
        return f"{path} is a pair with a number, as clip_by_global_norm and value_and_grad return: give the tree in it"
    given, expected = trees._describe(gradients), trees._describe(params)
    return f"{path} is {given}, but the parameters have {expected} there: give a tree like theirs"


def _alike(params: Any, gradients: Any) -> bool:
    """Whether both are dicts with the same keys, or both sequences of one length and the same names, if any."""
    if isinstance(params, dict) and isinstance(gradients, dict):
        return params.keys() == gradients.keys()
    sequences = all(trees.is_node(tree) and not isinstance(tree, dict) for tree in (params, gradients))
    names = [getattr(tree, "_fields", None) for tree in (params, gradients)]
    return sequences and len(params or ()) == len(gradients) and names[0] == names[1]


def _blocks(arrays: Iterable[np.ndarray], buffer: np.ndarray) -> Iterator[np.ndarray]:
    """All elements in order, as many as the buffer holds at a time: large arrays as they are, small ones gathered."""
    small: list[np.ndarray] = []
    filled = 0
    for array in arrays:
        flat = array.reshape(-1)
        large = 2 * flat.size >= len(buffer)
        if small and (large or filled + flat.size > len(buffer)):
            yield np.concatenate(small, out=buffer[:filled])
            small, filled = [], 0
        if large:
            for start in range(0, flat.size, len(buffer)):
                yield flat[start : start + len(buffer)].astype(buffer.dtype, copy=False)
        else:
            small.append(flat)
            filled += flat.size
    if small:
        yield np.concatenate(small, out=buffer[:filled])


def _global_norm(gradients: Any) -> float:
    arrays = trees.leaves(gradients)
    if not all(type(g) is np.ndarray and g.dtype.kind == "f" for g in arrays):
        arrays = [_floats(path, g) for path, g in trees.items(gradients, "gradients")]
    with np.errstate(over="ignore", invalid="ignore"):
        wide = (g.astype(np.float32) if g.dtype == np.float16 else g for g in arrays)  # whose squares are too small
        total = sum(float(np.vdot(g, g)) for g in wide)
    if 1e-20 < total < 1e30:
        return math.sqrt(total)
    paths = [path for path, _ in trees.items(gradients, "gradients")]
    largest = max(map(_largest, paths, arrays), default=0.0)  # the squares may have over- or underflowed
    scale = largest or 1.0
    norm = math.inf  # that of long doubles may be, though they aren't
    if scale < math.inf:
        norm = scale * math.sqrt(sum(float(np.sum(np.square(g.astype(float) / scale))) for g in arrays))
    if norm == math.inf:
        raise ValueError("the norm of the gradients exceeds the largest float, 1.8e308: it can't be clipped")
    return norm


def _largest(path: str, g: np.ndarray) -> float:
    largest = float(np.max(np.abs(g), initial=0))
    if not math.isfinite(largest) and not np.isfinite(g).all():
        index = np.argwhere(~np.isfinite(g))[0].tolist()
        raise ValueError(f"{path}{index or ''} is {g[*index]}: only finite gradients can be clipped")
    return largest


def _floats(path: str, x: Any) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind != "f":
        raise TypeError(f"{path} must be an array of real floating-point numbers, not {array.dtype}")
    return array


def _decay(weight_decay: Decay, path: str, p: np.ndarray) -> float:
    decay = weight_decay(path, p) if callable(weight_decay) else weight_decay
    return _number(f"the weight decay of {path}" if callable(weight_decay) else "weight_decay", decay)


def _check_number(name: str, value: Any) -> None:
    if np.ndim(value) or np.asarray(value).dtype.kind not in "biuf":
        raise TypeError(f"{name} must be a real number, not {value!r}")


def _number(name: str, value: float, end: float = math.inf) -> float:
    _check_number(name, value)
    if not 0 <= value < end:
        limit = "finite" if end == math.inf else f"below {end}"
        raise ValueError(f"{name} must be at least 0 and {limit}, not {value}")
    return float(value)


def _like(path: str, own: np.ndarray, given: Any) -> np.ndarray:
    array = np.asarray(given)
    dtypes = {a.dtype.newbyteorder("=") for a in (array, own)}  # files of states have one byte order only
    if array.shape != own.shape or len(dtypes) > 1:
        raise ValueError(f"{path} is {array.dtype}{array.shape}, but this optimiser has {own.dtype}{own.shape} there")
    return array
