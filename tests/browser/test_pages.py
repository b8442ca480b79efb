"""Both pages in a real browser: stepping, numbers, controls, keyboard, widths and schemes."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import npgrad as ng

DEMOS = Path(__file__).parents[2] / "demos"
SETTINGS = [(360, "light"), (360, "dark"), (1440, "light"), (1440, "dark")]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    tape, _, _ = runpy.run_path(str(DEMOS / "tape_walk.py"))["walk"]()
    path = tmp_path_factory.mktemp("page") / "tape.html"
    tape.save_page(path)
    return tape, path


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    path = tmp_path_factory.mktemp("lab") / "rope_lab.html"
    assert runpy.run_path(str(DEMOS / "rope_lab.py"))["main"](path) == 0
    return path


def shown(browser, heading):
    """The numbers of the heat map under a heading."""
    found = browser.execute_script(
        "const h = [...document.querySelectorAll('#record h3')].find(h => h.textContent === arguments[0]);"
        "return [...h.nextElementSibling.children].map(c => c.dataset.number)",
        heading,
    )
    return np.array(found, float)


def test_every_step_by_keyboard_shows_the_tapes_numbers(view, walked):
    tape, path = walked
    browser = view(path)
    body, count = browser.find_element(By.TAG_NAME, "body"), len(tape.records)
    steps = [(i, False) for i in range(count)] + [(i, True) for i in sorted(tape.adjoints, reverse=True)]
    assert len(steps) == 2 * count
    keys = [Keys.ARROW_RIGHT] * (len(steps) - 1) + [Keys.ARROW_LEFT] * (len(steps) - 1) + [Keys.ARROW_LEFT]
    for (i, back), key in zip([*steps, *steps[-2::-1]], keys, strict=True):
        title = f"%{i} {tape.names[i]}" if i in tape.names else f"%{i}"
        np.testing.assert_allclose(shown(browser, f"value of {title}"), np.ravel(tape.values[i]), rtol=1e-5)
        if back:
            np.testing.assert_allclose(shown(browser, f"adjoint ȳ of {title}"), np.ravel(tape.adjoints[i]), rtol=1e-5)
        lit = browser.find_elements(By.CSS_SELECTOR, "path.lit.back" if back else "path.lit")
        assert len(lit) == len(tape.records[i].parents)
        body.send_keys(key)
    assert browser.find_element(By.ID, "where").text.startswith("step 1 of")


def test_a_heat_map_says_its_numbers_by_keyboard(view, walked):
    tape, path = walked
    browser = view(path)
    grid = browser.find_element(By.CSS_SELECTOR, "#record .map")
    grid.send_keys(Keys.ARROW_RIGHT)
    said = browser.find_element(By.CSS_SELECTOR, "#record .map + output").text
    assert said == f"[0, 1] {tape.values[0][0, 1]:g}"


@pytest.mark.parametrize(("width", "scheme"), SETTINGS)
def test_pages_fit_their_width(view, walked, lab, width, scheme):
    for path in (walked[1], lab):
        browser = view(path, width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(251, 251, 249)" if scheme == "light" else "rgb(21, 24, 28)")


def test_names_are_text(view, tmp_path):
    name = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"
    tape = ng.WatchfulTape()
    np.exp(tape.variable([1.0, -np.inf, np.nan], name=name))
    tape.save_page(tmp_path / "tape.html")
    browser = view(tmp_path / "tape.html")
    assert browser.title == "A tape, step by step"
    assert name in browser.find_element(By.CSS_SELECTOR, "#record h2").text


def test_the_labs_numbers_are_npgrads(view, lab):
    browser = view(lab)
    assert browser.execute_script("return known.length") == 48
    assert browser.execute_script("return largestDifference(known)") <= 1e-12


def test_each_control_of_the_lab(view, lab):
    browser = view(lab)
    score = lambda: float(browser.find_element(By.ID, "score").text.split()[2].rstrip(";"))
    before = score()
    browser.find_element(By.ID, "both").click()
    assert score() == pytest.approx(before, abs=1e-12)
    seen = {round(before, 9)}
    for name, choice in (("base", "100"), ("layout", "half"), ("scaling", "linear, factor 4"), ("width", "16")):
        Select(browser.find_element(By.ID, name)).select_by_visible_text(choice)
        seen.add(round(score(), 9))
    for name in ("m", "n"):
        browser.find_element(By.ID, name).send_keys(Keys.ARROW_RIGHT * (3 if name == "m" else 2))
        seen.add(round(score(), 9))
    browser.find_element(By.ID, "one").click()
    seen.add(round(score(), 9))
    browser.find_element(By.CSS_SELECTOR, "[data-content=query0]").send_keys("5")
    seen.add(round(score(), 9))
    assert len(seen) == 9  # a choice of moves in which no distance comes twice
    assert len(browser.find_elements(By.CSS_SELECTOR, "#circles figure")) == 8
    assert len(browser.find_elements(By.CSS_SELECTOR, "td.equal")) > 0
