"""A new primitive with a wrong derivative, named by the checker; then the right one.

    python demos/custom_primitive.py

Soft sign, x / (1 + |x|), has the slope 1 / (1 + |x|)². The first rule forgets the square.
"""

import sys

import numpy as np

import npgrad as ng


@ng.primitive
def soft_sign(x):
    return x / (1 + np.abs(x))


def wrong_rule(out, x):
    return lambda g: g / (1 + np.abs(x))


def right_rule(out, x):
    return lambda g: g / (1 + np.abs(x)) ** 2


def loss(x, w):
    return np.sum(np.tanh(soft_sign(x @ w)))


def main():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    soft_sign.defvjp(wrong_rule)
    try:
        ng.check_grads(loss, x, w)
    except ValueError as error:
        print(f"with the wrong rule, the checker says:\n\n{error}\n")
    else:
        return 1
    soft_sign.defvjp(right_rule)
    print(f"with the right rule:\n\n{ng.check_grads(loss, x, w)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
