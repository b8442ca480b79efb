"""What the tests hold npgrad against: reference data, and differences that owe nothing to npgrad.check."""

import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


def reference(name):
    """The cases of tests/data/NAME.json by name, each with its arrays by role: case["in"]["q"], case["grad"]["q"]…"""
    described = json.loads((DATA / f"{name}.json").read_text())
    arrays = np.load(DATA / f"{name}.npz")
    cases = {}
    for case in described["cases"]:
        case = dict(case)
        for role, members in case.get("arrays", {}).items():
            case[role] = {n: _array(arrays, case["name"], role, n, d) for n, d in members.items()}
        cases[case["name"]] = case
    return cases


def _array(arrays, case, role, name, described):
    if "data" in arrays:  # the packed form
        dtype, shape, start = described
        size = int(np.prod(shape))
        return arrays["data"][start : start + size].astype(dtype).reshape(shape)
    return arrays[f"{case}/{role}/{name}"]


def differences(f, args, cotangent=None, step=1e-4):
    """The gradient of sum(cotangent * f(*args)) for each float argument, None for others.

    Central differences in long double with one Richardson step: about 1e-12 for smooth functions of moderate size
    (on platforms whose long double is wider than float64).
    """
    wide = [np.array(a, np.longdouble) if np.asarray(a).dtype.kind == "f" else a for a in args]

    def total(values):
        out = np.asarray(f(*values))
        return np.sum(out * (1 if cotangent is None else np.asarray(cotangent, np.longdouble)))

    gradients = []
    for position, a in enumerate(wide):
        if np.asarray(args[position]).dtype.kind != "f":
            gradients.append(None)
            continue
        g = np.zeros(a.shape, np.longdouble)
        for i in np.ndindex(*a.shape):
            h = np.longdouble(step) * max(1, abs(a[i]))
            slope = {}
            for scale in (1, 2):
                ends = []
                for sign in (1, -1):
                    moved = a.copy()
                    moved[i] += sign * scale * h
                    ends.append(total([*wide[:position], moved, *wide[position + 1 :]]))
                slope[scale] = (ends[0] - ends[1]) / (2 * scale * h)
            g[i] = (4 * slope[1] - slope[2]) / 3
        gradients.append(g.astype(float))
    return gradients
