"""Every coordinate of a small decoder's gradient by central differences: `check_grads`, and a plain loop, the floor."""

import numpy as np
from problem import batch, config, parameters
from timing import compare

import npgrad as ng
from npgrad import decoder

SIZE = {"batch": 2, "tokens": 6, "width": 8, "layers": 1, "heads": 2, "vocabulary": 11, "hidden": 16}


def main():
    settings, (tokens, targets) = config(SIZE), batch(SIZE)
    params = ng.tree.map(lambda p: p.astype(float), parameters(SIZE))

    def loss(params):
        return decoder.loss(settings, params, tokens, targets)

    def loop(h=1e-5):
        gradient = ng.tree.map(np.zeros_like, params)
        for p, g in zip(ng.tree.leaves(params), ng.tree.leaves(gradient)):
            for i in np.ndindex(p.shape):
                kept = p[i]
                p[i] = kept + h
                above = loss(params)
                p[i] = kept - h
                g[i] = (above - loss(params)) / (2 * h)
                p[i] = kept
        return gradient

    ng.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8), loop(), ng.grad(loss)(params))
    coordinates = sum(p.size for p in ng.tree.leaves(params))
    systems = {"a loop of differences": loop, "npgrad.check_grads": lambda: ng.check_grads(loss, params)}
    compare(f"{coordinates} coordinates of a decoder's loss, float64", systems, seconds=3.0, least=3)
