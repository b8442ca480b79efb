"""What gradient checkers say about the battery in tests/check/battery.py: one line per case, one column per checker.

    python tests/benchmarks/gradcheck_verdicts.py [--all]

Columns: npgrad's check_vjp, PyTorch's gradcheck (torch.autograd.Function around each pair), JAX's check_grads
(jax.custom_vjp over pure_callback, 64 bits enabled) and HIPS autograd's check_grads (defvjp), each with its defaults,
where installed. `caught` or `MISSED` for a planted fault, `passed` or `FALSE ALARM` for a correct function; a
case a checker can't be given (a dictionary of parameters, float16) counts as `refused`. Without --all only the lines
are printed on which some checker is wrong.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "check")]

import battery  # noqa: E402


def floats(case):
    """The positions of the float arrays among the arguments."""
    return [i for i, a in enumerate(case.args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]


def gradients(case, g, args):
    """The backward's results for the float arguments, whatever their form."""
    case.forward(*args)
    found = case.backward(g, *args)
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    return [found[i] for i in floats(case)] if len(found) == len(args) else found


def with_floats(case, arrays):
    args = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    for i, x in zip(floats(case), arrays):
        args[i] = x
    return args


def npgrad_says(case):
    from npgrad.check import GradientError, check_vjp

    try:
        check_vjp(case.forward, case.backward, *with_floats(case, [case.args[i].copy() for i in floats(case)]))
    except GradientError:
        return False
    return True


def torch_says(case):
    import torch

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*tensors)
            out = case.forward(*with_floats(case, [t.detach().numpy() for t in tensors]))
            return torch.from_numpy(np.array(out))

        @staticmethod
        def backward(ctx, g):
            args = with_floats(case, [t.detach().numpy() for t in ctx.saved_tensors])
            return tuple(torch.from_numpy(np.asarray(d)) for d in gradients(case, g.numpy(), args))

    tensors = [torch.from_numpy(np.array(case.args[i])).requires_grad_() for i in floats(case)]
    return torch.autograd.gradcheck(Pair.apply, tensors, raise_exception=False)


def jax_says(case):
    import jax
    from jax.test_util import check_grads

    jax.config.update("jax_enable_x64", True)
    arrays = [np.array(case.args[i]) for i in floats(case)]
    expected = np.asarray(case.forward(*with_floats(case, arrays)))
    shape = jax.ShapeDtypeStruct(expected.shape, expected.dtype)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]

    def run(*xs):
        return np.asarray(case.forward(*with_floats(case, [np.array(x) for x in xs])))

    def pull(g, *xs):
        return [np.asarray(d) for d in gradients(case, np.array(g), with_floats(case, [np.array(x) for x in xs]))]

    @jax.custom_vjp
    def f(*xs):
        return jax.pure_callback(run, shape, *xs)

    f.defvjp(lambda *xs: (f(*xs), xs), lambda xs, g: tuple(jax.pure_callback(pull, shapes, g, *xs)))
    try:
        check_grads(f, arrays, order=1, modes=["rev"])
    except Exception:  # assertion, or what the callback's shapes give away
        return False
    return True


def autograd_says(case):
    from autograd.extend import defvjp, primitive
    from autograd.test_util import check_grads

    @primitive
    def f(*xs):
        return case.forward(*with_floats(case, [np.asarray(x) for x in xs]))

    count = len(floats(case))
    rules = [lambda out, *xs, i=i: lambda g: gradients(case, g, with_floats(case, [*xs]))[i] for i in range(count)]
    defvjp(f, *rules)
    try:
        check_grads(f, modes=["rev"], order=1)(*(np.array(case.args[i]) for i in floats(case)))
    except Exception:  # assertion, or what broke inside
        return False
    return True


CHECKERS = {"npgrad": npgrad_says, "torch": torch_says, "jax": jax_says, "autograd": autograd_says}


def verdict(checker, case, faulty):
    if checker is not npgrad_says and not all(
        isinstance(a, np.ndarray) and (a.dtype.kind != "f" or a.dtype.itemsize > 2) for a in case.args
    ):
        return "refused"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            passed = checker(case)
        except ImportError:
            return "-"
        except Exception:  # a checker that falls over has not passed the case
            passed = False
    if faulty:
        return "MISSED" if passed else "caught"
    return "passed" if passed else "FALSE ALARM"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print the cases on which all agree, too")
    everything = parser.parse_args().all
    counts = {name: {} for name in CHECKERS}
    print(f"{'case':<46}" + "".join(f"{name:>13}" for name in CHECKERS))
    for cases, faulty in ((battery.FAULTS, True), (battery.HARD, False)):
        for case in cases:
            said = {name: verdict(checker, case, faulty) for name, checker in CHECKERS.items()}
            for name, word in said.items():
                counts[name][word] = counts[name].get(word, 0) + 1
            if everything or {"MISSED", "FALSE ALARM"} & set(said.values()):
                print(f"{case.name:<46}" + "".join(f"{word:>13}" for word in said.values()), flush=True)
    print(f"\n{len(battery.FAULTS)} faults, {len(battery.HARD)} correct functions")
    for name, words in counts.items():
        print(f"{name:<10}" + ", ".join(f"{n} {word}" for word, n in sorted(words.items())))


if __name__ == "__main__":
    main()
