"""The README's pictures, from real runs: the tape's page and the RoPE lab, photographed in Chromium.

    python demos/make_pictures.py [loss_curve.png]

needs the extra `browser`, chromium and chromium-driver. A loss curve that train_decoder.py drew is copied beside them.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import rope_lab
import tape_walk
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PICTURES = Path(__file__).with_name("pictures")
BACKWARD_STEP = 22  # of tape_walk's page: the adjoint of the scores


def photograph(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
                 "disable-component-update", "disable-sync", "disable-quic", "hide-scrollbars",
                 f"user-data-dir={folder}/profile"):  # fmt: skip
        options.add_argument(f"--{flag}")
    with webdriver.Chrome(options, Service("/usr/bin/chromedriver")) as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 1200, "height": 780, "deviceScaleFactor": 1, "mobile": False},
        )
        for name in ("tape", "rope_lab"):
            browser.get((folder / f"{name}.html").as_uri())
            if name == "tape":
                browser.execute_script("show(arguments[0])", BACKWARD_STEP)
            browser.save_screenshot(str(PICTURES / f"{name}.png"))


def main(loss_curve=None):
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        tape_walk.walk()[0].save_page(folder / "tape.html")
        rope_lab.main(folder / "rope_lab.html")
        photograph(folder)
    if loss_curve:
        shutil.copy(loss_curve, PICTURES / "loss_curve.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
