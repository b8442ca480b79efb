"""demos/rope_lab.py: the numbers that it embeds, from the formula."""

import json
import re
import runpy

import numpy as np
from oracle import DATA

DEMO = DATA.parents[1] / "demos" / "rope_lab.py"


def test_the_embedded_numbers(tmp_path, capsys):
    demo, path = runpy.run_path(str(DEMO)), tmp_path / "lab.html"
    assert demo["main"](path) == 0
    assert "72 settings" in capsys.readouterr().out
    page = path.read_text(encoding="utf-8")
    cases = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert len(cases) == 72
    for case in cases:
        s, numbers = case["settings"], case["numbers"]
        half = s["width"] // 2
        frequencies = s["base"] ** (-np.arange(half) / half)
        kept = {"none": 1, "linear": 0, "llama3": np.clip((64 * frequencies / (2 * np.pi) - 1) / 3, 0, 1)}[s["scaling"]]
        angles = (s["n"] - s["m"]) * frequencies * (kept + (1 - kept) / 4)
        q, k = demo["contents"](s["width"])
        a, b = (x.reshape(half, 2).T if s["layout"] == "adjacent" else x.reshape(2, half) for x in (q, k))
        turned = (b[0] + 1j * b[1]) * np.exp(1j * angles)
        assert np.isclose(numbers["distances"][63 + s["n"] - s["m"]], numbers["score"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.diag(numbers["matrix"]), numbers["score"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(numbers["score"], np.sum(((a[0] - 1j * a[1]) * turned).real), rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(numbers["adjoint"]), np.linalg.norm(k), rtol=1e-13)
