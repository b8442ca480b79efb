"""NumPy's functions that have no rule, each with the reason: what a Variable's error says and the catalogue prints.

Functions whose results are constants (shapes, orders, comparisons…) are not here: those are `nondifferentiable`.
"""

from __future__ import annotations

import numpy as np

from ..variable import REFUSED, nondifferentiable

IN_PLACE = "it changes an array in place"
LEAVES = "NumPy doesn't let it be intercepted, so its result would be off the tape"
CONSTANT = "its arguments are settings, not arrays to be differentiated"
INTEGERS = "it is for integers"
STEPS = "its result jumps when elements meet or cross bounds"
FILES = "files and text hold constants: give it x.value"

_REASONS = {
    "put": f"{IN_PLACE}: use ng.set_at(np.ravel(x), index, values)",
    "put_along_axis": f"{IN_PLACE}: use ng.set_at(x, index, values)",
    "place": f"{IN_PLACE}: use np.where(mask, values, x) or ng.set_at(x, mask, values)",
    "putmask": f"{IN_PLACE}: use np.where(mask, values, x)",
    "copyto": f"{IN_PLACE}, as np.full_like does inside: use np.where(mask, x, y), or np.broadcast_to(x, shape)",
    "fill_diagonal": f"{IN_PLACE}: use ng.set_at(x, np.diag_indices(n), value)",
    "unique": f"{STEPS}: use np.sort(x), or x[index] with the index of np.unique(x.value, return_index=True)",
    "histogram": f"{STEPS}: use np.bincount with weights, or a smooth kernel",
    "roots": "roots may be complex: solve for them by Newton's method",
    "poly": "the coefficients of a matrix come from complex eigenvalues: multiply factors with np.convolve",
    "polydiv": "its loop writes in place: use np.polymul and np.polysub",
    "polyfit": "it solves by lstsq: use np.linalg.pinv(np.vander(x, degree + 1)) @ y",
    "nextafter": "the result is one rounding step away: its derivative is 1 in theory and noise in practice",
    "sort_complex": "its result is complex: use np.sort",
    "kaiser": f"{LEAVES}: use np.i0",
    "trapz": "its name is np.trapezoid now",
    "bmat": f"{LEAVES}: use np.block",
    "fromfunction": f"{LEAVES}: call the function with np.indices(shape)",
    "fromiter": f"{LEAVES}: use np.stack",
    "frompyfunc": "its results are objects: write the function in NumPy, or make an ng.primitive of it",
    "full": f"{LEAVES}: use np.broadcast_to(x, shape)",
    "linalg.lstsq": "its results depend on a rank: use np.linalg.pinv(a) @ b, or np.linalg.solve(a.T @ a, a.T @ b)",
    "linalg.eig": "eigenvalues of a general matrix are complex: use np.linalg.eigh for a symmetric one",
    "linalg.eigvals": "eigenvalues of a general matrix are complex: use np.linalg.eigvalsh for a symmetric one",
}
_GROUPS = {
    f"{LEAVES}: use np.stack([x, y]) to make an array of Variables": (
        "array asarray asanyarray asarray_chkfinite ascontiguousarray asfortranarray asmatrix require from_dlpack"
    ),
    INTEGERS: (
        "bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift "
        "bitwise_xor invert left_shift right_shift gcd lcm packbits unpackbits"
    ),
    f"{STEPS}: use np.sort(x), or x.value": (
        "unique_all unique_counts unique_inverse unique_values intersect1d setdiff1d setxor1d union1d"
    ),
    f"{STEPS}: use a smooth kernel, or x.value": "histogram2d histogramdd histogram_bin_edges",
    FILES: (
        "load loadtxt genfromtxt fromfile fromregex fromstring frombuffer save savetxt savez savez_compressed "
        "base_repr binary_repr format_float_positional format_float_scientific"
    ),
    "dates have no derivative": "busday_count busday_offset is_busday datetime_as_string datetime_data isnat",
    CONSTANT: (
        "arange empty eye identity ones zeros tri indices diag_indices tril_indices triu_indices mask_indices "
        "bartlett blackman hamming hanning broadcast_shapes isdtype issubdtype mintypecode promote_types typename info "
        "get_include get_printoptions set_printoptions printoptions getbufsize setbufsize geterr seterr geterrcall "
        "seterrcall show_config show_runtime test nested_iters _get_promotion_state _no_nep50_warning "
        "_set_promotion_state"
    ),
}  # fmt: skip


def _register(reasons):
    for name, reason in reasons.items():
        home = np.linalg if name.startswith("linalg.") else np
        name = name.removeprefix("linalg.")
        if name in home.__all__:  # some are missing in older or newer versions
            REFUSED[getattr(home, name)] = reason


_register(_REASONS)
REFUSED[np.add, "at"] = f"{IN_PLACE}: use ng.add_at(x, index, value)"
_register({name: reason for reason, names in _GROUPS.items() for name in names.split()})

nondifferentiable(
    np.angle, np.einsum_path, np.diag_indices_from, np.tril_indices_from, np.triu_indices_from, np.iterable,
    np.isscalar, np.isfortran, np.ravel_multi_index, np.unravel_index, *[np.in1d] if "in1d" in np.__all__ else [],  # type: ignore[attr-defined]
)  # fmt: skip
