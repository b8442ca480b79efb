"""Both pages in a real browser: stepping, numbers, controls, keyboard, widths and schemes."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import npgrad as ng
from npgrad import decoder

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


def where(browser):
    return browser.find_element(By.ID, "where").text


def test_hover_and_focus_show_numbers(view, walked):
    tape, path = walked
    browser = view(path)
    said = lambda: browser.find_element(By.CSS_SELECTOR, "#record .map + output").text
    assert said().startswith("4×4 float64, from ")
    for i in (6, 15, 0):
        cell = browser.find_elements(By.CSS_SELECTOR, "#record .map span")[i]
        ActionChains(browser).move_to_element(cell).perform()
        assert said() == f"[{i // 4}, {i % 4}] {tape.values[0].flat[i]:g}"
    browser.refresh()
    for _ in range(7):  # four buttons, the slider, the graph, the map
        ActionChains(browser).send_keys(Keys.TAB).perform()
    assert "map" in browser.switch_to.active_element.get_attribute("class")
    assert said() == f"[0, 0] {tape.values[0][0, 0]:g}"
    ActionChains(browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT).perform()
    assert said() == f"[1, 1] {tape.values[0][1, 1]:g}"
    assert where(browser).startswith("step 1 of")


def test_buttons_slider_and_graph_by_mouse(view, walked):
    tape, path = walked
    browser = view(path)
    count = 2 * len(tape.records)
    presses = {"next": 2, "last": count, "back": count - 1, "first": 1}
    for button, step in presses.items():
        browser.find_element(By.ID, button).click()
        assert where(browser).startswith(f"step {step} of {count}: ")
    slider = browser.find_element(By.ID, "slider")
    start = 8 - slider.size["width"] / 2  # the thumb's middle, seen from the slider's
    drag(browser, slider, start, slider.size["width"] / 2)
    assert abs(int(where(browser).split()[1]) - count / 2) < 2
    drag(browser, slider, 0, slider.size["width"] / 2 - 1)
    assert where(browser).startswith(f"step {count} of {count}: backward, adjoint of record %0")
    node = browser.find_elements(By.CSS_SELECTOR, "#graph svg g")[7]
    node.click()
    assert where(browser).endswith("backward, adjoint of record %7")
    assert node.get_attribute("class") == "now"


def test_buttons_and_slider_by_keyboard(view, walked):
    tape, path = walked
    browser = view(path)
    press = lambda *keys: ActionChains(browser).send_keys(*keys).perform()
    press(Keys.TAB, Keys.TAB, Keys.TAB, Keys.ENTER, Keys.SPACE)
    assert where(browser).startswith("step 3 of")
    press(Keys.TAB, Keys.TAB, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert where(browser).startswith("step 5 of")
    assert browser.switch_to.active_element.get_attribute("aria-valuetext") == where(browser)
    press(Keys.END)
    assert where(browser).startswith(f"step {2 * len(tape.records)} of")
    press(Keys.TAB, Keys.HOME)
    assert where(browser).startswith("step 1 of")


def drag(browser, element, start, by):
    """From a place beside an element's middle, by so many pixels to the right."""
    chain = ActionChains(browser, duration=50).move_to_element_with_offset(element, int(start), 0).click_and_hold()
    chain.move_by_offset(int(by) // 2, 0).move_by_offset(int(by) - int(by) // 2, 0).release().perform()


def test_a_training_step_of_a_decoder(view, tmp_path, capsys):
    """300 records in less than 2 MB, each shown forwards and backwards; a step's time is printed."""
    config = decoder.Config(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=20, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    tape = ng.WatchfulTape()
    watch = lambda path, x: tape.variable(x, name=path)
    params = ng.tree.map_with_path(watch, decoder.init(config, seed=0), path="params")
    tokens = np.random.default_rng(0).integers(0, 256, (4, 33))
    loss = decoder.loss(config, params, tokens[:, :-1], tokens[:, 1:])
    tape.gradient(loss, ng.tree.leaves(params), retain=True)
    tape.save_page(tmp_path / "tape.html")
    assert (tmp_path / "tape.html").stat().st_size < 2_000_000
    assert 290 <= len(tape.records) <= 310
    browser = view(tmp_path / "tape.html")
    browser.set_script_timeout(120)
    seen, times = browser.execute_script(
        """const seen = [], times = [], record = document.getElementById("record");
        for (let i = 1; i < steps.length; i++) {
          const start = performance.now();
          document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
          record.scrollHeight;  // all is laid out
          times.push(performance.now() - start); seen.push(step);
        }
        return [seen, times];"""
    )
    assert seen == [*range(1, 2 * len(tape.records))]
    assert "record %0 params['embedding']" in where(browser)
    with capsys.disabled():
        middle, most = np.percentile(times, [50, 99])
        print(f"\n{len(tape.records)} records: {middle:.1f} ms a step, {most:.0f} ms at the 99th percentile")


@pytest.mark.parametrize(("width", "scheme"), SETTINGS)
def test_pages_fit_their_width(view, walked, lab, width, scheme):
    tape, path = walked
    back = "rgb(251, 251, 249)" if scheme == "light" else "rgb(21, 24, 28)"
    fits = "return document.documentElement.scrollWidth <= innerWidth"
    browser = view(path, width, scheme)
    for step in range(2 * len(tape.records)):
        assert browser.execute_script("show(arguments[0]); " + fits, step), step
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == back
    browser = view(lab, width, scheme)
    for choice in ("4", "8", "16"):
        Select(browser.find_element(By.ID, "width")).select_by_visible_text(choice)
        assert browser.execute_script(fits), choice
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == back


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
    assert browser.execute_script("return known.length") == 72
    assert browser.execute_script("return largestDifference(known)") <= 1e-12


def score(browser):
    return float(browser.find_element(By.ID, "score").text.split()[2].rstrip(";"))


def position(browser, name):
    return int(browser.find_element(By.ID, f"{name}-is").text)


@pytest.mark.parametrize("width", [360, 1440])
def test_each_control_of_the_lab_by_mouse(view, lab, width):
    browser = view(lab, width)
    seen = [score(browser)]
    for name, was, by in (("m", 7, 20), ("n", 3, 11)):
        slider = browser.find_element(By.ID, name)
        room = slider.size["width"] - 16
        drag(browser, slider, (was / 63 - 0.5) * room, by / 63 * room)
        assert abs(position(browser, name) - was - by) <= 2
        assert f"key minus query: {position(browser, 'n') - position(browser, 'm')}" in browser.page_source
        seen.append(score(browser))
    places = position(browser, "m"), position(browser, "n")
    browser.find_element(By.ID, "both").click()
    assert (position(browser, "m"), position(browser, "n")) == (places[0] + 1, places[1] + 1)
    assert score(browser) == pytest.approx(seen[-1], abs=1e-12)
    browser.find_element(By.ID, "one").click()
    assert (position(browser, "m"), position(browser, "n")) == (places[0] + 2, places[1] + 1)
    seen.append(score(browser))
    choices = {"base": ["100"], "layout": ["half"], "scaling": ["linear", "llama3"], "width": ["16"]}
    for name, choice in [(key, value) for key, values in choices.items() for value in values]:
        browser.find_element(By.CSS_SELECTOR, f"#{name} option[value='{choice}']").click()
        seen.append(score(browser))
    for name in ("query0", "key15"):
        field = browser.find_element(By.CSS_SELECTOR, f"[data-content={name}]")
        ActionChains(browser).double_click(field).send_keys("5").perform()
        seen.append(score(browser))
    assert len({round(x, 9) for x in seen}) == len(seen)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#circles figure")) == 8


def test_the_lab_by_keyboard_alone(view, lab):
    browser = view(lab)
    keys = {
        "width": Keys.ARROW_DOWN, "base": Keys.ARROW_UP, "layout": Keys.ARROW_DOWN, "scaling": Keys.ARROW_DOWN,
        "m": Keys.ARROW_RIGHT, "n": Keys.PAGE_UP, "both": Keys.SPACE, "one": Keys.ENTER,
    }  # fmt: skip
    before = score(browser)
    for name, key in keys.items():
        ActionChains(browser).send_keys(Keys.TAB).perform()
        assert browser.switch_to.active_element.get_attribute("id") == name
        outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        ActionChains(browser).send_keys(key).perform()
        after = score(browser)
        assert (after == pytest.approx(before, abs=1e-12)) == (name == "both"), name
        before = after
    for i in range(32):
        ActionChains(browser).send_keys(Keys.TAB, Keys.ARROW_UP).perform()
        name = browser.switch_to.active_element.get_attribute("data-content")
        assert name == (f"query{i}" if i < 16 else f"key{i - 16}")
        assert score(browser) != before
        before = score(browser)


def test_the_lab_marks_diagonals_distance_and_norms(view, lab):
    browser = view(lab)
    marks = [[cell.text[0] for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows_of(browser)]
    apart = [[3 + j - 7 - i for j in range(8)] for i in range(8)]
    assert marks == [["›" if d > 0 else "‹" if d < 0 else "=" for d in row] for row in apart]
    styles = {c: cell_style(browser, c) for c in ("equal", "later", "earlier")}
    assert styles == {"equal": "3px solid", "later": "2px solid", "earlier": "2px dashed"}
    assert "slow" not in browser.find_element(By.CSS_SELECTOR, "#circles figure line").get_attribute("class")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#circles figure:nth-child(n+2) line.slow")) == 12
    said = browser.find_element(By.ID, "norms").text.replace(",", "").replace(";", "").split()
    assert (said[1], said[6]) == (said[3], said[8])
    assert f"{score(browser):.4f} at key minus query -4" in browser.find_element(
        By.CSS_SELECTOR, "#curve svg"
    ).get_attribute("aria-label")


def rows_of(browser):
    return browser.find_elements(By.CSS_SELECTOR, "#matrix tr")[1:]


def cell_style(browser, kind):
    script = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.borderWidth, s.borderStyle]"
    return " ".join(browser.execute_script(script, f"td.{kind}"))
