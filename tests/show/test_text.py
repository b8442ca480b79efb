"""The listing of a tape."""

import subprocess
import sys

import numpy as np

import npgrad as ng


def small():
    tape = ng.Tape()
    q = tape.variable(np.arange(8.0).reshape(2, 4) / 10, name="q")
    rope = ng.RotaryEmbedding(4, 8)
    turned = ng.rotary_pairs(q, rope.cosines[:2], rope.sines[:2], layout="half")
    weights = ng.softmax(ng.causal_mask(turned @ turned.mT))
    return tape, q, np.sum(weights * weights)


def test_each_record_is_a_line_with_what_it_did_and_keeps():
    tape, q, loss = small()
    lines = tape.table().splitlines()
    assert lines[0].split() == ["name", "operation", "inputs", "shape", "dtype", "saves"]
    assert lines[1].split() == ["0", "q", "variable", "2×4", "float64"]
    assert lines[2].split()[:4] == ["1", "rotary_pairs[layout='half']", "0", "2×4"]
    assert "cosines, sines (64 B)" in lines[2]
    assert [line.split()[1].split("[")[0] for line in lines[3:-1]] == [
        "matrix_transpose", "matmul", "causal_mask", "softmax", "multiply", "sum",
    ]  # fmt: skip
    assert lines[-1].startswith(f"{len(tape.records)} records, ")
    tape.gradient(loss, [q], retain=True)
    again = tape.table().splitlines()
    assert again[0].endswith("adjoint")
    assert np.isclose(float(again[1].split()[-1]), np.linalg.norm(tape.adjoints[0]), rtol=1e-5)
    assert again[-2].split()[-1] == "1"


def test_saved_bytes_count_each_buffer_once():
    tape = ng.Tape()
    x = tape.variable(np.ones(1000))
    a = np.ones(1000)
    for _ in range(3):
        x = x * a
    assert tape.table().splitlines()[-1] == "4 records, 8,000 bytes saved"


def test_long_tapes_are_elided_in_the_middle():
    tape = ng.Tape()
    x = tape.variable(1.0)
    for _ in range(500):
        x = x + 1.0
    text = str(tape).splitlines()
    assert len(text) < 100
    assert any("more records" in line for line in text)
    assert text[1].split()[0] == "0"
    assert text[-2].split()[0] == "500"
    assert len(tape.table().splitlines()) == 501 + 2


def test_a_released_tape_says_so():
    tape, q, loss = small()
    tape.gradient(loss, [q])
    assert str(tape).endswith("0 records, 0 bytes saved, released")


def test_the_first_listing_of_a_subclass_with_one_of_its_own():
    code = (
        "import npgrad as ng\n"
        "class Mine(ng.Tape):\n"
        "    def __str__(self):\n"
        "        return 'mine ' + super().__str__()\n"
        "tape = Mine()\n"
        "tape.variable(1.0)\n"
        "print(tape)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("mine ") == 1
