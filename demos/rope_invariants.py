"""The laws of rotary position embedding, each tried on many vectors, with the largest deviation found.

    python demos/rope_invariants.py

Some laws say what holds: scores that know distances but not places, lengths, caches filled piece by piece. Others say
what does not, and is done by mistake: bases that differ between queries and keys, positions restarted in each segment,
rotating twice. Rounding deviates by 1e-10 at most, a broken law by far more. The exit code is 1 if one of them
does not come out as it should.
"""

import sys

import numpy as np

import npgrad as ng

WIDTH, CAPACITY, BASE, OTHER_BASE, SHIFT = 8, 128, 10_000.0, 1_000.0, 23
TOLERANCE = 1e-10
PLACES = [(0, 0), (2, 7), (7, 2), (-3, 8), (40, 99), (1, 100)]

rope = ng.RotaryEmbedding(WIDTH, CAPACITY, BASE)
q, k = np.random.default_rng(0).normal(size=(2, 1, WIDTH))
keys = np.random.default_rng(1).normal(size=(9, WIDTH))


def at(x, *positions, table=rope):
    return table.rotate(x, positions=positions)


def score(m, n, q=q, k=k, table=rope, key_table=None):
    return np.vecdot(at(q, m, table=table), at(k, n, table=key_table or table))[0]


def deviation(found, expected):
    return float(np.max(np.abs(np.asarray(found) - expected)))


def relative_offset():
    return max(deviation(score(m, n), score(0, n - m)) for m, n in PLACES)


def shared_shift():
    return max(deviation(score(m, n), score(m + SHIFT, n + SHIFT)) for m, n in PLACES)


def norm():
    everywhere = rope.rotate(np.repeat(q, CAPACITY, axis=0))
    return deviation(np.linalg.norm(everywhere, axis=-1), np.linalg.norm(q))


def periodicity():
    angles = np.linspace(-4, 4, 9)[:, None]
    x = np.random.default_rng(2).normal(size=(9, 2))
    turned, once_more = (ng.rotary_pairs(x, np.cos(a), np.sin(a)) for a in (angles, angles + 2 * np.pi))
    return deviation(turned, once_more)


def mismatched_bases():
    other = ng.RotaryEmbedding(WIDTH, CAPACITY, OTHER_BASE)
    return max(deviation(score(m, n, key_table=other), score(m + SHIFT, n + SHIFT, key_table=other)) for m, n in PLACES)


def segments():
    return deviation(
        np.concatenate([rope.rotate(keys[a:b], a) for a, b in ((0, 3), (3, 4), (4, 9))]), rope.rotate(keys)
    )


def restarted():
    return deviation(np.concatenate([rope.rotate(keys[a:b]) for a, b in ((0, 3), (3, 4), (4, 9))]), rope.rotate(keys))


def twice():
    return deviation(rope.rotate(rope.rotate(keys)), rope.rotate(keys))


def permutation():
    half = ng.RotaryEmbedding(WIDTH, CAPACITY, BASE, layout="half")
    return deviation(half.rotate(ng.adjacent_to_half(keys, axis=-1)), ng.adjacent_to_half(rope.rotate(keys), axis=-1))


def unpermuted():
    return deviation(ng.RotaryEmbedding(WIDTH, CAPACITY, BASE, layout="half").rotate(keys), rope.rotate(keys))


HOLD = {
    "dot(R(m)q, R(n)k) = dot(q, R(n-m)k)": relative_offset,
    "dot(R(m)q, R(n)k) = dot(R(m+23)q, R(n+23)k)": shared_shift,
    "|R(m)q| = |q|": norm,
    "an angle of 2 pi more = the same rotation": periodicity,
    "keys rotated in segments, each at its true position = in one pass": segments,
    "half(permuted x) = permuted adjacent(x)": permutation,
}
BREAK = {
    "a shared shift leaves the score of bases 10000 and 1000 alone": mismatched_bases,
    "keys rotated in segments that restart at position 0 = in one pass": restarted,
    "cached keys rotated again = rotated once": twice,
    "half(x) = adjacent(x) on the same features": unpermuted,
}


def counterexample():
    """Numbers for mismatched bases, on four features that one can follow."""
    q, k = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[2.0, -1.0, 0.5, 3.0]])
    one, other = (ng.RotaryEmbedding(4, CAPACITY, base) for base in (BASE, OTHER_BASE))
    print("\nq = (1, 2, 3, 4), k = (2, -1, 0.5, 3): the score, and the score 23 positions on")
    print("   m    n    one base               bases 10000 and 1000")
    for m, n in PLACES[:4]:
        scores = [score(a, b, q, k, one, t) for t in (one, other) for a, b in ((m, n), (m + SHIFT, n + SHIFT))]
        print(f"{m:4} {n:4}  " + "  ".join(f"{round(s, 6) + 0.0:10.6f}" for s in scores))


def single_frequency():
    """One pair alone: the score of (1, 0) with itself is the cosine of the angle between them."""
    x = np.array([[1.0, 0.0]])
    print("\none pair: the score of (1, 0) with itself, by the angle between")
    for name, angle in (("pi", np.pi), ("2 pi", 2 * np.pi)):
        print(f"{name:>5} {np.vecdot(x, ng.rotary_pairs(x, [[np.cos(angle)]], [[np.sin(angle)]]))[0]:9.6f}")


def main():
    good = True
    print("deviation  law")
    for laws, verdict in ((HOLD, "holds"), (BREAK, "breaks, as it must")):
        for law, deviation_of in laws.items():
            found = deviation_of()
            as_it_should = (found <= TOLERANCE) == (laws is HOLD)
            good &= as_it_should
            print(f"{found:9.1e}  {law}: {verdict if as_it_should else 'NOT SO'}")
    try:
        ng.RotaryEmbedding(WIDTH - 1, CAPACITY)
        good = False
        print(" accepted  an odd width: NOT SO")
    except ng.RotaryError as error:
        print(f"  refused  an odd width: {error.code}")
    counterexample()
    single_frequency()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
