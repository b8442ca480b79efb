"""The whole text of a small attention's listing, reverse program and graph; and that long tapes print."""

import numpy as np
import pytest

import npgrad as ng
from npgrad.show.text import COLUMNS, entries, operation


@pytest.fixture
def attention():
    rope = ng.RotaryEmbedding(4, 3)
    tape = ng.Tape()
    q, k, v = (tape.variable(np.arange(12.0).reshape(3, 4) / (10 + i), name=n) for i, n in enumerate("qkv"))
    scores = rope.rotate(q) @ rope.rotate(k).mT / 2.0
    tape.gradient(np.sum(ng.softmax(ng.causal_mask(scores)) @ v), [q, k, v], retain=True)
    return tape


LISTING = """\
    name  operation                        inputs  shape  dtype    saves
0   q     variable                                 3×4    float64
1   k     variable                                 3×4    float64
2   v     variable                                 3×4    float64
3         rotary_pairs[layout='adjacent']  0       3×4    float64  cosines, sines (96 B)
4         rotary_pairs[layout='adjacent']  1       3×4    float64  cosines, sines (96 B)
5         matrix_transpose                 4       4×3    float64
6         matmul                           3, 5    3×3    float64  y, x (192 B)
7         divide[x2=2.0]                   6       3×3    float64
8         causal_mask                      7       3×3    float64  keep (9 B)
9         softmax                          8       3×3    float64  p, values (144 B)
10        matmul                           9, 2    3×4    float64  y, x (168 B)
11        sum                              10      -      float64
12 records, 537 bytes saved"""

BACKWARD = """\
d11 = 1
d10  = sum'(d11)
d9  = matmul'0(d10)  saves y (96 B)
d2  = matmul'1(d10)  saves x (72 B)  # v
d8  = softmax'(d9)  saves p, values (144 B)
d7  = causal_mask'(d8)  saves keep (9 B)
d6  = divide[x2=2.0]'(d7)
d3  = matmul'0(d6)  saves y (96 B)
d5  = matmul'1(d6)  saves x (96 B)
d4  = matrix_transpose'(d5)
d1  = rotary_pairs[layout='adjacent']'(d4)  saves cosines, sines (96 B)  # k
d0  = rotary_pairs[layout='adjacent']'(d3)  saves cosines, sines (96 B)  # q"""

DOT = r"""digraph tape {
  node [fontname="monospace"];
  0 [label="0: q\nvariable\n3×4 float64", shape=box];
  1 [label="1: k\nvariable\n3×4 float64", shape=box];
  2 [label="2: v\nvariable\n3×4 float64", shape=box];
  3 [label="3\nrotary_pairs[layout='adjacent']\n3×4 float64", shape=ellipse];
  4 [label="4\nrotary_pairs[layout='adjacent']\n3×4 float64", shape=ellipse];
  5 [label="5\nmatrix_transpose\n4×3 float64", shape=ellipse];
  6 [label="6\nmatmul\n3×3 float64", shape=ellipse];
  7 [label="7\ndivide[x2=2.0]\n3×3 float64", shape=ellipse];
  8 [label="8\ncausal_mask\n3×3 float64", shape=ellipse];
  9 [label="9\nsoftmax\n3×3 float64", shape=ellipse];
  10 [label="10\nmatmul\n3×4 float64", shape=ellipse];
  11 [label="11\nsum\n- float64", shape=ellipse];
  0 -> 3;
  1 -> 4;
  4 -> 5;
  3 -> 6;
  5 -> 6;
  6 -> 7;
  7 -> 8;
  8 -> 9;
  9 -> 10;
  2 -> 10;
  10 -> 11;
}"""


def test_the_listing(attention):
    attention.adjoints = {}  # their norms have rounding in them, and a test of their own
    assert attention.table() == LISTING


def test_the_reverse_program(attention):
    assert attention.backward_listing() == BACKWARD


def test_the_graph(attention):
    assert attention.to_dot() == DOT


def test_names_are_escaped(attention):
    attention.names[0] = 'a "b" \\ &lt; <script>\n'
    assert r'label="0: a \"b\" \\ &amp;lt; <script>\\n\nvariable' in attention.to_dot()
    assert "&lt;script&gt;" in attention._repr_html_()
    assert "<script>" not in attention._repr_html_()
    assert r"<script>\n" in attention.table().splitlines()[1]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_listing_fits_its_width(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    tape = ng.WatchfulTape()
    x = tape.variable(np.full((10, 10, 100), 1e-9), name="params['blocks'][10]['attention']['weight']")
    y = x
    for _ in range(110):
        y = np.clip(y * x, -1e-9, 1e9)
    tape.gradient(np.sum(y), [x], retain=True)
    lines = str(tape).splitlines()
    assert max(map(len, lines)) <= columns < max(map(len, tape.table().splitlines()))
    left_out = {40: ["shape", "dtype", "saves", "line", "adjoint"], 60: ["dtype", "saves", "line"]}.get(columns, [])
    assert lines[0].split() == [name for name in COLUMNS if name and name not in left_out]
    assert lines[1].split()[1].endswith("ght']")
    assert columns == 40 or lines[1].endswith(f"{np.linalg.norm(tape.adjoints[0]):.6g}")
    assert lines[-1].startswith("222 records, ")


def test_parameters_are_shown():
    """A WatchfulTape knows all of them, another tape those that a pullback keeps, and keywords."""
    shown = {}
    for kind in (ng.Tape, ng.WatchfulTape):
        tape = kind()
        x = tape.variable(np.ones((2, 3)))
        np.sum(x + 1.0, axis=0), np.reshape(x, (3, 2)), x[0, :2], 3.0 / x, np.clip(x, 0.123456789, None)
        ng.softmax(x, axis=0), x.astype("f4"), x[:, [0, 2]], ng.rms_norm(x, np.ones(3), eps=1e-3), x * np.ones(3)
        np.einsum("ij->i", x), x ** np.float64(3), np.concatenate([x, x], axis=1), x[..., None]
        names = [operation(r, entries(tape).get(i)) for i, r in enumerate(tape.records) if r.primitive]
        shown[kind] = [name.replace("newshape", "shape") for name in names]  # as NumPy 2.0 calls it
    assert shown[ng.WatchfulTape] == [
        "add[x2=1.0]", "sum[axis=0]", "reshape[shape=(3, 2)]", "read[index=(0, :2)]", "divide[x1=3.0]",
        "clamp[low=0.123457, high=None]", "softmax[axis=0]", "cast[dtype=float32]", "read[index=(:, [0, 2])]",
        "rms_norm[eps=0.001]", "multiply", "contract[subscripts='ij->i']", "power[x2=3.0]", "join[axis=1]",
        "read[index=(..., None)]",
    ]  # fmt: skip
    assert shown[ng.Tape] == [
        "add", "sum", "reshape", "read[index=(0, :2)]", "divide", "clamp", "softmax", "cast",
        "read[index=(:, [0, 2])]", "rms_norm[eps=0.001]", "multiply", "contract", "power[x2=3.0]", "join[axis=1]",
        "read[index=(..., None)]",
    ]  # fmt: skip


def test_debug_mode_names_source_lines_and_parameters():
    with ng.debug():
        tape = ng.Tape()
        tape.variable(1.0) / 2.0
    assert tape.table().splitlines()[2].split()[1:] == [
        "divide[x2=2.0]", "0", "-", "float64", tape.lines[1],
    ]  # fmt: skip


def test_a_watchful_tape_names_source_lines():
    tape = ng.WatchfulTape()
    np.exp(tape.variable(1.0))
    assert "test_listings.py:" in tape.table().splitlines()[2]


def test_a_notebook_shows_variables_and_reports():
    x = ng.Tape().variable([1.0, 2.0], name="<b>")
    assert x._repr_html_().startswith("<b>&lt;b&gt;</b> 2 float64")
    assert "pass" in ng.check_grads(np.sin, 0.5)._repr_html_()


def test_a_hundred_thousand_records_print():
    tape = ng.Tape()
    x = tape.variable(np.ones(2))
    for _ in range(99_999):
        x = x * 1.0
    text = str(tape)
    assert text.splitlines()[-1].startswith("100000 records, ")
    assert len(text.splitlines()) < 100
