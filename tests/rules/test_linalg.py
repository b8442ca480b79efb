"""Linear algebra: every declared example, laws of decompositions, singular and zero matrices, refusals."""

import numpy as np
import pytest
import rule_checks
from hypothesis import given, settings
from hypothesis import strategies as st

import npgrad as ng


@pytest.mark.parametrize("check", rule_checks.CHECKS)
@pytest.mark.parametrize("example", rule_checks.examples("linalg"))
def test_examples(example, check):
    check(example)


def gradient(f, x):
    return ng.grad(lambda x: np.sum(f(x)))(np.asarray(x, float))


ZERO_NORMS = [
    (None, 3),
    (2, 3),
    (1, 3),
    (3, 3),
    (2.5, 3),
    (np.inf, 3),
    ("fro", (2, 3)),
    ("nuc", (2, 3)),
    (2, (2, 3)),
    (1, (2, 3)),
]


@pytest.mark.parametrize(("order", "shape"), ZERO_NORMS)
def test_a_norm_has_slope_zero_at_zero(order, shape):
    np.testing.assert_array_equal(gradient(lambda x: np.linalg.norm(x, order), np.zeros(shape)), np.zeros(shape))


def test_a_zero_vector_beside_others_and_zeros_within_a_vector():
    x = np.array([[0.0, 0.0], [3.0, -4.0], [0.0, 2.0]])
    for order, row in ((2, [0.6, -0.8]), (1, [1, -1]), (np.inf, [0, -1])):
        got = gradient(lambda x, order=order: np.linalg.norm(x, order, axis=1), x)
        np.testing.assert_allclose(got, [[0, 0], row, [0, 1]], atol=1e-15)
    second = ng.hessian(lambda x: np.linalg.norm(x))(np.array([0.0, 2.0]))
    np.testing.assert_allclose(second, [[0.5, 0], [0, 0]])


def test_the_number_of_nonzero_elements_is_a_plain_result():
    assert np.linalg.norm(ng.Tape().variable([0.0, 2.0, 3.0]), 0) == 2


def test_ties_of_the_largest_share_evenly():
    np.testing.assert_allclose(gradient(lambda x: np.linalg.norm(x, np.inf), [2.0, -2.0, 1.0]), [0.5, -0.5, 0])


def adjugate(a):
    n = len(a)
    minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)]
    return np.array([[(-1) ** (i + j) * minors[j][i] for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_det_of_singular_matrices_has_the_gradient_of_a_polynomial(rank):
    random = np.random.default_rng(rank)
    a = random.normal(size=(3, rank)) @ random.normal(size=(rank, 3))
    np.testing.assert_allclose(gradient(np.linalg.det, a), adjugate(a).T, atol=1e-12)
    second = ng.hessian(np.linalg.det)(a)
    step = 0.5  # det is a cubic of each pair of elements: differences of this step are exact
    for i in np.ndindex(3, 3):
        for j in np.ndindex(3, 3):
            if i != j:
                e, f = np.zeros((3, 3)), np.zeros((3, 3))
                e[i] = f[j] = step
                corners = [s * t * np.linalg.det(a + s * e + t * f) for s in (1, -1) for t in (1, -1)]
                assert abs(sum(corners) / (4 * step * step) - second[i + j]) < 1e-12


def test_det_of_a_stack_with_one_singular_matrix():
    a = np.stack([np.eye(2) * 2, np.ones((2, 2))])
    np.testing.assert_allclose(gradient(np.linalg.det, a), [[[2, 0], [0, 2]], [[1, -1], [-1, 1]]], atol=1e-14)
    assert gradient(np.linalg.det, np.zeros((0, 0))).shape == (0, 0)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.integers(1, 4), st.sampled_from([(), (2,), (0,)]))
def test_decompositions_rebuild_their_matrix(seed, n, batch):
    """A function that rebuilds the matrix is the identity: its pullback gives the cotangent back."""
    random = np.random.default_rng(seed)
    a = random.normal(size=(*batch, n, n)) + 3 * np.diag(np.arange(1.0, n + 1))
    g = random.normal(size=a.shape)
    symmetric = (a + np.matrix_transpose(a)) / 2

    def by_svd(x):
        u, s, vh = np.linalg.svd(x)
        return (u * s[..., None, :]) @ vh

    def by_qr(x):
        q, r = np.linalg.qr(x)
        return q @ r

    def by_eigh(x):
        values, vectors = np.linalg.eigh(x)
        return (vectors * values[..., None, :]) @ np.matrix_transpose(vectors)

    for f in (by_svd, by_qr, lambda x: np.linalg.inv(np.linalg.inv(x)), lambda x: np.linalg.pinv(np.linalg.pinv(x))):
        np.testing.assert_allclose(ng.vjp(f, a)[1](g)[0], g, rtol=1e-6, atol=1e-7)
    lower = np.tril(g + np.matrix_transpose(g), -1) + np.tril(np.triu(g))
    np.testing.assert_allclose(ng.vjp(by_eigh, symmetric)[1](g)[0], lower, rtol=1e-6, atol=1e-7)


def test_only_the_triangle_that_is_read_has_a_gradient():
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    for f, upper in (
        (np.linalg.cholesky, False), (lambda x: np.linalg.cholesky(x, upper=True), True),
        (np.linalg.eigvalsh, False), (lambda x: np.linalg.eigvalsh(x, "U"), True),
    ):  # fmt: skip
        found = gradient(lambda x, f=f: f(x) ** 2, a)
        assert found[(1, 0) if upper else (0, 1)] == 0
        assert found[(0, 1) if upper else (1, 0)] != 0
        symmetric = gradient(lambda x, f=f: f(x @ x.T) ** 2, a)
        np.testing.assert_allclose(symmetric, symmetric.T)  # of the other triangle's too, where it counts


def test_equal_eigenvalues_and_singular_values_give_finite_gradients():
    projector = lambda x: np.sum(np.linalg.eigh(x)[1] @ np.linalg.eigh(x)[1].T)
    np.testing.assert_allclose(gradient(projector, np.eye(3)), np.zeros((3, 3)), atol=1e-12)
    np.testing.assert_allclose(gradient(lambda x: np.linalg.eigvalsh(x), np.eye(3)), np.eye(3), atol=1e-14)
    np.testing.assert_allclose(gradient(np.linalg.svdvals, np.eye(3)), np.eye(3), atol=1e-14)
    assert np.isfinite(gradient(lambda x: np.linalg.svd(x)[0], np.eye(3))).all()


def test_results_come_in_numpys_named_tuples():
    v = ng.Tape().variable(np.eye(2))
    assert np.linalg.eigh(v)._fields == ("eigenvalues", "eigenvectors")
    assert np.linalg.svd(v)._fields == ("U", "S", "Vh")
    assert np.linalg.qr(v)._fields == ("Q", "R")
    sign, value = np.linalg.slogdet(v)
    assert np.linalg.slogdet(v)._fields == ("sign", "logabsdet")
    assert type(sign) is np.float64
    assert type(value) is ng.Variable
    assert np.linalg.matrix_rank(v) == 2


def test_the_zeroth_power_is_a_constant_and_a_wrong_power_numpys_error():
    v = ng.Tape().variable(np.eye(2) * 3)
    assert np.array_equal(np.linalg.matrix_power(v, 0), np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(ng.Tape().variable(np.zeros((2, 2))))


def test_what_is_refused_says_what_to_use():
    v = ng.Tape().variable(np.arange(6.0).reshape(3, 2))
    for attempt, hint in (
        (lambda: np.linalg.svd(v), "full_matrices=False"),
        (lambda: np.linalg.svd(v.T @ v, hermitian=True), "np.linalg.eigh"),
        (lambda: np.linalg.qr(v, mode="complete"), "mode='reduced'"),
        (lambda: np.linalg.lstsq(v, np.ones(3)), "np.linalg.pinv"),
        (lambda: np.linalg.eig(v.T @ v), "np.linalg.eigh"),
        (lambda: np.linalg.eigvals(v.T @ v), "np.linalg.eigvalsh"),
    ):
        with pytest.raises(TypeError, match=hint):
            attempt()
    for attempt, said in (
        (lambda: np.linalg.norm(v, 3), "order 3"), (lambda: np.linalg.norm(v[0], "fro"), "two axes"),
        (lambda: np.linalg.eigh(v.T @ v, "X"), "'L' or 'U'"), (lambda: np.linalg.norm(v[None], 2), "needs an axis"),
        (lambda: np.linalg.norm(v[None], 2, (0, 1, 2)), "not 3"), (lambda: np.linalg.tensorinv(v, 0), "positive"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            attempt()


def test_eigenvalues_equal_but_for_rounding():
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    a = q @ np.diag([1.0, 1.0, 1.0, 3.0]) @ q.T
    a = (a + a.T) / 2
    weights = np.random.default_rng(1).normal(size=(4, 4))

    def projected(part):
        vectors = lambda x: np.linalg.eigh(x)[1][:, part]
        return gradient(lambda x: (vectors(x) @ vectors(x).T) * weights, a)

    lone = projected(slice(3, 4))  # the two projections add up to the identity
    np.testing.assert_allclose(projected(slice(0, 3)), -lone, atol=1e-13)
    assert np.abs(lone).max() > 0.1


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_tensorsolve_with_axes(axes):
    a, b = np.random.default_rng(0).normal(size=(2, 3, 6)), np.arange(6.0)
    got = np.linalg.tensorsolve(ng.Tape().variable(a), b, axes=axes)
    np.testing.assert_allclose(got.value, np.linalg.tensorsolve(a, b, axes=axes), rtol=1e-9)


def test_tensorsolve_names_an_axis_that_is_not_there():
    with pytest.raises(np.exceptions.AxisError, match="3"):
        np.linalg.tensorsolve(ng.Tape().variable(np.ones((2, 6, 3))), np.ones(6), axes=(3,))
