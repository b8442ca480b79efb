"""A real browser for pages opened from disk: Debian's Chromium, driven by Selenium.

    python -m pytest tests/browser

needs `pip install -e '.[test,browser]'`, chromium and chromium-driver; the plain test command leaves this folder out.
"""

import json

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-quic --hide-scrollbars"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def view(browser):
    """Open a page at a width and in a scheme; afterwards nothing was logged and nothing but the file was loaded."""

    def opened(path, width=1440, scheme="light"):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get(path.as_uri())
        return browser

    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    yield opened
    assert browser.get_log("browser") == []
    assert [u for u in requested(browser) if not u.startswith(("file:", "data:", "about:"))] == []


def requested(browser):
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
