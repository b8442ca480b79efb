"""What each primitive computes and what its pullback adds to whom, in mathematical notation, for the page.

x̄ is the adjoint of x: the derivative of the tape's output by it. A bracket is 1 where it holds and 0 elsewhere
(Iverson's), ½ [a = b] shares between equals, σ is the logistic sigmoid, Φ and φ are the normal distribution and its
density, Aᵀ transposes the last two axes, and products of matrices are written without a dot. Elementwise formulas
can be computed as they stand; the tests hold each one against the rule that is registered.
"""

from __future__ import annotations

from typing import NamedTuple


class Formula(NamedTuple):
    """The names of a primitive's arguments, its forward, and what it adds to each one's adjoint ("" if nothing)."""

    letters: tuple[str, ...]
    forward: str
    backward: tuple[str, ...]


def formula(name: str) -> Formula | None:
    """The formula of the primitive of that name, None for one that has none here."""
    found = ELEMENTWISE.get(name) or OTHERS.get(name)
    return Formula(tuple(found[0].split()), found[1], found[2:]) if found else None


ELEMENTWISE: dict[str, tuple[str, ...]] = {
    "add": ("a b", "y = a + b", "ā += ȳ", "b̄ += ȳ"),
    "subtract": ("a b", "y = a − b", "ā += ȳ", "b̄ += −ȳ"),
    "multiply": ("a b", "y = a · b", "ā += ȳ · b", "b̄ += ȳ · a"),
    "divide": ("a b", "y = a / b", "ā += ȳ / b", "b̄ += −ȳ · y / b"),
    "negative": ("x", "y = −x", "x̄ += −ȳ"),
    "positive": ("x", "y = x", "x̄ += ȳ"),
    "conjugate": ("x", "y = x", "x̄ += ȳ"),
    "remainder": ("a b", "y = a − floor(a / b) · b", "ā += ȳ", "b̄ += −ȳ · floor(a / b)"),
    "fmod": ("a b", "y = a − trunc(a / b) · b", "ā += ȳ", "b̄ += −ȳ · trunc(a / b)"),
    "power": ("a b", "y = a ^ b", "ā += ȳ · b · a ^ (b − 1)", "b̄ += ȳ · y · ln(a)"),
    "float_power": ("a b", "y = a ^ b", "ā += ȳ · b · a ^ (b − 1)", "b̄ += ȳ · y · ln(a)"),
    "square": ("x", "y = x²", "x̄ += ȳ · 2 · x"),
    "sqrt": ("x", "y = √(x)", "x̄ += ȳ / (2 · y)"),
    "cbrt": ("x", "y = ∛(x)", "x̄ += ȳ / (3 · y²)"),
    "reciprocal": ("x", "y = 1 / x", "x̄ += −ȳ · y²"),
    "exp": ("x", "y = exp(x)", "x̄ += ȳ · y"),
    "exp2": ("x", "y = 2 ^ x", "x̄ += ȳ · y · ln(2)"),
    "expm1": ("x", "y = exp(x) − 1", "x̄ += ȳ · (y + 1)"),
    "log": ("x", "y = ln(x)", "x̄ += ȳ / x"),
    "log2": ("x", "y = ln(x) / ln(2)", "x̄ += ȳ / (x · ln(2))"),
    "log10": ("x", "y = ln(x) / ln(10)", "x̄ += ȳ / (x · ln(10))"),
    "log1p": ("x", "y = ln(1 + x)", "x̄ += ȳ / (1 + x)"),
    "logaddexp": ("a b", "y = ln(exp(a) + exp(b))", "ā += ȳ · exp(a − y)", "b̄ += ȳ · exp(b − y)"),
    "logaddexp2": ("a b", "y = ln(2 ^ a + 2 ^ b) / ln(2)", "ā += ȳ · 2 ^ (a − y)", "b̄ += ȳ · 2 ^ (b − y)"),
    "sin": ("x", "y = sin(x)", "x̄ += ȳ · cos(x)"),
    "cos": ("x", "y = cos(x)", "x̄ += −ȳ · sin(x)"),
    "tan": ("x", "y = tan(x)", "x̄ += ȳ · (1 + y²)"),
    "arcsin": ("x", "y = arcsin(x)", "x̄ += ȳ / √(1 − x²)"),
    "arccos": ("x", "y = arccos(x)", "x̄ += −ȳ / √(1 − x²)"),
    "arctan": ("x", "y = arctan(x)", "x̄ += ȳ / (1 + x²)"),
    "sinh": ("x", "y = sinh(x)", "x̄ += ȳ · cosh(x)"),
    "cosh": ("x", "y = cosh(x)", "x̄ += ȳ · sinh(x)"),
    "tanh": ("x", "y = tanh(x)", "x̄ += ȳ · (1 − y²)"),
    "tanh_slope": ("x t", "y = 1 − t²,  t = tanh(x)", "x̄ += −ȳ · 2 · t · y"),
    "arcsinh": ("x", "y = arcsinh(x)", "x̄ += ȳ / √(x² + 1)"),
    "arccosh": ("x", "y = arccosh(x)", "x̄ += ȳ / √(x² − 1)"),
    "arctanh": ("x", "y = arctanh(x)", "x̄ += ȳ / (1 − x²)"),
    "deg2rad": ("x", "y = x · π / 180", "x̄ += ȳ · π / 180"),
    "radians": ("x", "y = x · π / 180", "x̄ += ȳ · π / 180"),
    "rad2deg": ("x", "y = x · 180 / π", "x̄ += ȳ · 180 / π"),
    "degrees": ("x", "y = x · 180 / π", "x̄ += ȳ · 180 / π"),
    "arctan2": ("a b", "y = arctan2(a, b)", "ā += ȳ · b / (a² + b²)", "b̄ += −ȳ · a / (a² + b²)"),
    "hypot": ("a b", "y = √(a² + b²)", "ā += ȳ · a / y", "b̄ += ȳ · b / y"),
    "sinc": ("x", "y = sin(π · x) / (π · x)", "x̄ += ȳ · (cos(π · x) − y) / x"),
    "absolute": ("x", "y = abs(x)", "x̄ += ȳ · sign(x)"),
    "fabs": ("x", "y = abs(x)", "x̄ += ȳ · sign(x)"),
    "copysign": ("a b", "y = abs(a) · sign(b)", "ā += ȳ · sign(a) · sign(b)", "b̄ += 0 · ȳ"),
    "heaviside": ("a b", "y = [a > 0] + b · [a = 0]", "ā += 0 · ȳ", "b̄ += ȳ · [a = 0]"),
    "ldexp": ("x n", "y = x · 2 ^ n", "x̄ += ȳ · 2 ^ n"),
    "made_finite": ("x", "y = x where it is finite", "x̄ += ȳ · [x is finite]"),
    "fraction": ("x", "y = x − trunc(x)", "x̄ += ȳ"),
    "mantissa": ("x", "y = x / 2 ^ n, the n that brings y to ½ and above", "x̄ += ȳ / 2 ^ n"),
    "maximum": ("a b", "y = max(a, b)", "ā += ȳ · ([a > b] + ½ · [a = b])", "b̄ += ȳ · ([b > a] + ½ · [a = b])"),
    "minimum": ("a b", "y = min(a, b)", "ā += ȳ · ([a < b] + ½ · [a = b])", "b̄ += ȳ · ([b < a] + ½ · [a = b])"),
    "fmax": ("a b", "y = max(a, b)", "ā += ȳ · ([a > b] + ½ · [a = b])", "b̄ += ȳ · ([b > a] + ½ · [a = b])"),
    "fmin": ("a b", "y = min(a, b)", "ā += ȳ · ([a < b] + ½ · [a = b])", "b̄ += ȳ · ([b < a] + ½ · [a = b])"),
    "where": ("c a b", "y = a where c holds, b elsewhere", "", "ā += ȳ · [c]", "b̄ += ȳ · [not c]"),
    "clamp": (
        "x l h", "y = min(max(x, l), h)", "x̄ += ȳ · [x ≥ l] · [x ≤ h]", "l̄ += ȳ · [x < l]", "h̄ += ȳ · [x > h]",
    ),
    "sigmoid": ("x", "y = 1 / (1 + exp(−x))", "x̄ += ȳ · y · (1 − y)"),
    "silu": ("x", "y = x · σ(x)", "x̄ += ȳ · σ(x) · (1 + x · (1 − σ(x)))"),
    "swiglu": ("g u", "y = g · σ(g) · u", "ḡ += ȳ · u · σ(g) · (1 + g · (1 − σ(g)))", "ū += ȳ · g · σ(g)"),
    "gelu": ("x", "y = x · Φ(x)", "x̄ += ȳ · (Φ(x) + x · φ(x))"),
    "gelu[approximate='tanh']": (
        "x", "y = x · σ(√(8 / π) · (x + 0.044715 · x³))",
        "x̄ += ȳ · (σ(z) + x · z′ · σ(z) · σ(−z)),  z what σ is applied to, z′ = √(8 / π) · (1 + 3 · 0.044715 · x²)",
    ),
    "normal_cdf": ("x", "y = Φ(x)", "x̄ += ȳ · φ(x)"),
    "sinc_derivative": ("x n", "y = sinc⁽ⁿ⁾(x), the n-th derivative", "x̄ += ȳ · sinc⁽ⁿ⁺¹⁾(x)"),
    "i0": ("x", "y = I₀(x)", "x̄ += ȳ · I₁(x)"),
    "unwrap": ("x", "y = x without jumps of a period", "x̄ += ȳ"),
}  # fmt: skip

OTHERS: dict[str, tuple[str, ...]] = {
    # the decoder's
    "rotary_pairs": (
        "x c s", "each pair of features: (a, b) ↦ (a c − b s, a s + b c),  c = cos θ, s = sin θ (−sin θ if inverse)",
        "(ā, b̄) += (u c + v s, −u s + v c),  (u, v) = ȳ: the transposed rotation",
        "c̄ += u a + v b", "s̄ += v a − u b (its negative if inverse)",
    ),
    "causal_mask": ("s", "yᵢⱼ = sᵢⱼ where query i may see key j, −∞ elsewhere", "s̄ᵢⱼ += ȳᵢⱼ · [i sees j]"),
    "softmax": ("s", "yᵢ = exp(sᵢ) / Σⱼ exp(sⱼ)", "s̄ᵢ += yᵢ · (ȳᵢ − Σⱼ ȳⱼ yⱼ)"),
    "log_softmax": ("s", "yᵢ = sᵢ − ln Σⱼ exp(sⱼ)", "s̄ᵢ += ȳᵢ − exp(yᵢ) · Σⱼ ȳⱼ"),
    "logsumexp": ("s", "y = ln Σⱼ exp(sⱼ)", "s̄ᵢ += ȳ · exp(sᵢ − y)"),
    "attention": (
        "Q K V", "Y = P V,  P = softmax(S),  S = Q Kᵀ / √d, −∞ where a key is hidden",
        "Q̄ += S̄ K / √d,  S̄ᵢⱼ = Pᵢⱼ · (P̄ᵢⱼ − Σₖ P̄ᵢₖ Pᵢₖ),  P̄ = Ȳ Vᵀ", "K̄ += S̄ᵀ Q / √d", "V̄ += Pᵀ Ȳ",
    ),
    "self_attention": (
        "X Wq Wk Wv Wo", "Y = A Wo,  A = attention(rotated X Wq, rotated X Wk, X Wv), by head; biases, if given, added",
        "X̄ += Q̄ Wqᵀ + K̄ Wkᵀ + V̄ Wvᵀ,  Q̄, K̄ turned back and V̄ from attention's pullback of Ȳ Woᵀ",
        "W̄q += Xᵀ Q̄", "W̄k += Xᵀ K̄", "W̄v += Xᵀ V̄", "W̄o += Aᵀ Ȳ",
    ),
    "feed_forward": (
        "X Wg Wu Wd", "Y = H Wd,  H = G · σ(G) · U,  G = X Wg,  U = X Wu",
        "X̄ += Ḡ Wgᵀ + Ū Wuᵀ,  Ḡ, Ū from swiglu's pullback of Ȳ Wdᵀ", "W̄g += Xᵀ Ḡ", "W̄u += Xᵀ Ū", "W̄d += Hᵀ Ȳ",
    ),
    "embedding": ("E id", "yₜ = E[idₜ]", "Ē[idₜ] += ȳₜ, for every t"),
    "linear": ("X W b", "Y = X W, plus b in every row if it is given", "X̄ += Ȳ Wᵀ", "W̄ += Xᵀ Ȳ", "b̄ += Σ Ȳ's rows"),
    "cross_entropy": (
        "l t", "y = the mean over tokens of ln Σⱼ exp(lⱼ) − l[t]", "l̄ⱼ += ȳ · (softmax(l)ⱼ − [j = t]) / tokens",
    ),
    "rms_norm": (
        "x w", "y = w · n,  n = x / r,  r = √(mean(x²) + ε)",
        "x̄ += (u − n · mean(u · n)) / r,  u = ȳ · w", "w̄ += Σ ȳ · n, over rows",
    ),
    "layer_norm": (
        "x w b", "y = w · n + b,  n = (x − mean(x)) / r,  r = √(var(x) + ε)",
        "x̄ += (u − mean(u) − n · mean(u · n)) / r,  u = ȳ · w", "w̄ += Σ ȳ · n, over rows", "b̄ += Σ ȳ, over rows",
    ),
    "_checkpointed": ("f x", "y = f(x)", "", "x̄ += the pullback of ȳ, for each input x: f runs again for it"),
    # products
    "matmul": ("A B", "Y = A B", "Ā += Ȳ Bᵀ", "B̄ += Aᵀ Ȳ"),
    "contract": (
        "spec a b", "y = Σ a · b, over the letters that spec's output lacks", "",
        "ā += Σ ȳ · b, over the letters that a lacks", "b̄ += Σ ȳ · a, over the letters that b lacks",
    ),
    "convolution": ("a b", "yₖ = Σᵢ aᵢ bₖ₋ᵢ", "āᵢ += Σₖ ȳₖ bₖ₋ᵢ", "b̄ⱼ += Σₖ ȳₖ aₖ₋ⱼ"),
    # shaping and choosing
    "reshape": ("x", "y = x in another shape", "x̄ += ȳ in x's shape"),
    "squeeze": ("x", "y = x without axes of length 1", "x̄ += ȳ in x's shape"),
    "expand_dims": ("x", "y = x with further axes of length 1", "x̄ += ȳ in x's shape"),
    "transpose": ("x", "y = x with its axes in another order", "x̄ += ȳ with its axes back in order"),
    "swapaxes": ("x", "y = x with two axes exchanged", "x̄ += ȳ with the same axes exchanged"),
    "moveaxis": ("x", "y = x with an axis moved", "x̄ += ȳ with the axis moved back"),
    "matrix_transpose": ("X", "Y = Xᵀ", "X̄ += Ȳᵀ"),
    "flip": ("x", "y = x, reversed along axes", "x̄ += ȳ, reversed along the same axes"),
    "rot90": ("x", "y = x, turned by quarter turns", "x̄ += ȳ, turned back"),
    "roll": ("x", "y = x, shifted around", "x̄ += ȳ, shifted back"),
    "broadcast_to": ("x", "y = x, repeated", "x̄ += Σ ȳ, over the repeats"),
    "cast": ("x", "y = x in another dtype", "x̄ += ȳ in x's dtype"),
    "join": ("x", "y = the inputs, one after the other", "x̄ += its part of ȳ, for each input x"),
    "tril": ("X", "Yᵢⱼ = Xᵢⱼ · [j ≤ i + k]", "X̄ᵢⱼ += Ȳᵢⱼ · [j ≤ i + k]"),
    "triu": ("X", "Yᵢⱼ = Xᵢⱼ · [j ≥ i + k]", "X̄ᵢⱼ += Ȳᵢⱼ · [j ≥ i + k]"),
    "on_diagonal": ("d", "Y = d on a diagonal, 0 elsewhere", "d̄ += Ȳ's diagonal"),
    "diagonal": ("X", "y = X's diagonal", "X̄'s diagonal += ȳ"),
    "surround": ("x", "y = x within a border", "x̄ += ȳ without the border"),
    "read": ("x i", "y = x[i]", "x̄[i] += ȳ, once for each time that an element was read"),
    "scatter": ("g i", "y = zeros, with y[i] += g", "ḡ += ȳ[i]"),
    "set_at": ("x i v", "y = x, but y[i] = v", "x̄ += ȳ, but 0 at i", "", "v̄ += ȳ[i]"),
    "permuted": ("x", "y = x in another order along an axis", "x̄ += ȳ, each element back in its place"),
    "quantile": ("x", "y = a weighted mean of two neighbours in order", "x̄ += ȳ · each element's weight"),
    "binned": ("n w", "yₖ = Σᵢ wᵢ · [nᵢ = k]", "", "w̄ᵢ += ȳ[nᵢ]"),
    # sums and extremes along axes
    "sum": ("x", "y = Σ x", "x̄ += ȳ, repeated over the summed axes"),
    "mean": ("x", "y = Σ x / n", "x̄ += ȳ / n, repeated over the summed axes"),
    "variance": ("x", "y = Σ (x − mean(x))² / n", "x̄ += ȳ · 2 · (x − mean(x)) / n"),
    "deviation": ("x", "y = √(Σ (x − mean(x))² / n)", "x̄ += ȳ · (x − mean(x)) / (n · y)"),
    "max": ("x", "y = the largest of x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "amax": ("x", "y = the largest of x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "min": ("x", "y = the smallest of x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "amin": ("x", "y = the smallest of x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "fmax_reduce": ("x", "y = the largest number in x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "fmin_reduce": ("x", "y = the smallest number in x", "x̄ += ȳ · [x = y] / the number of such elements"),
    "logaddexp_reduce": ("x", "y = ln Σ exp(x)", "x̄ += ȳ · exp(x − y)"),
    "logaddexp2_reduce": ("x", "y = log₂ Σ 2 ^ x", "x̄ += ȳ · 2 ^ (x − y)"),
    "hypot_reduce": ("x", "y = √(Σ x²)", "x̄ += ȳ · x / y"),
    "cumsum": ("x", "yᵢ = Σ xⱼ, over j ≤ i", "x̄ⱼ += Σ ȳᵢ, over i ≥ j"),
    "product": ("x", "y = Π xⱼ", "x̄ᵢ += ȳ · Π xⱼ, over j ≠ i"),
    "running_product": ("x", "yᵢ = Π xⱼ, over j ≤ i", "x̄ⱼ += Σ ȳᵢ · (Π xₖ, over k ≤ i but j), over i ≥ j"),
    "recurrence": ("g x", "yᵢ = gᵢ + xᵢ yᵢ₋₁", "ḡᵢ += uᵢ,  uᵢ = ȳᵢ + xᵢ₊₁ uᵢ₊₁", "x̄ᵢ += uᵢ yᵢ₋₁"),
    "bessel_i": ("x n", "y = Iₙ(x)", "x̄ += ȳ · (Iₙ₋₁(x) + Iₙ₊₁(x)) / 2"),
    "length": ("x", "y = √(Σ x²)", "x̄ += ȳ · x / y"),
    "power_norm": ("x p", "y = (Σ |x|ᵖ) ^ (1 / p)", "x̄ += ȳ · sign(x) · (|x| / y) ^ (p − 1)"),
    # linear algebra
    "inv": ("A", "Y = A⁻¹", "Ā += −Yᵀ Ȳ Yᵀ"),
    "solution": ("A B", "Y = A⁻¹ B", "Ā += −A⁻ᵀ Ȳ Yᵀ", "B̄ += A⁻ᵀ Ȳ"),
    "pseudo_inverse": (
        "A", "Y = A⁺", "Ā += −Yᵀ Ȳ Yᵀ + (1 − A Y) Ȳᵀ Y Yᵀ + Yᵀ Y Ȳᵀ (1 − Y A)",
    ),
    "cofactors": ("A", "Y = det(A) A⁻ᵀ", "Ā += Σ Ȳᵢⱼ · the signed cofactors of A without row i and column j"),
    "det": ("A", "y = det(A)", "Ā += ȳ · y · A⁻ᵀ, ȳ · the cofactors where A is singular"),
    "log_abs_det": ("A", "y = ln |det(A)|", "Ā += ȳ · A⁻ᵀ"),
    "lower_factor": (
        "A", "Y Yᵀ = A, Y lower triangular", "Ā += ½ Y⁻ᵀ (M + Mᵀ − the diagonal of M) Y⁻¹,  M = tril(Yᵀ Ȳ)",
    ),
    "eigen": (
        "A", "A = V diag(λ) Vᵀ,  y is λ above V",
        "Ā += V (diag(λ̄) + F · (Vᵀ V̄)) Vᵀ,  Fᵢⱼ = 1 / (λⱼ − λᵢ), 0 between equals",
    ),
    "singular": (
        "A", "A = U diag(s) Vᵀ,  y is U above s above V",
        "Ā += U (F · (Uᵀ Ū − Ūᵀ U) · sⱼ + sᵢ · F · (Vᵀ V̄ − V̄ᵀ V) + diag(s̄)) Vᵀ,  Fᵢⱼ = 1 / (sⱼ² − sᵢ²), 0 between "
        "equals;  plus (1 − U Uᵀ) Ū diag(s)⁻¹ Vᵀ for tall A, U diag(s)⁻¹ V̄ᵀ (1 − V Vᵀ) for wide A",
    ),
    "orthogonal": (
        "A", "A = Q R,  y is Q above Rᵀ",
        "Ā += (Q̄ + Q (L + Lᵀ − the diagonal of L)) R⁻ᵀ,  L = tril(R R̄ᵀ − Q̄ᵀ Q)",
    ),
}  # fmt: skip
