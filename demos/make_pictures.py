"""The README's pictures, from real runs: the tape's page and the RoPE lab, photographed in Chromium.

    python demos/make_pictures.py [out/loss.png]

needs the extras `browser` and `demos` (for Pillow, which matplotlib brings), chromium and chromium-driver. A loss curve
that train_decoder.py drew is copied beside them.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import rope_lab
import tape_walk
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PICTURES = Path(__file__).with_name("pictures")
BACKWARD_STEP = 22  # of tape_walk's page: the adjoint of the scores
COLOURS = 64  # make a picture a third of the size, and no different to the eye
HEIGHTS = {"tape": 930, "rope_lab": 980}


def photograph(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
                 "disable-component-update", "disable-sync", "disable-quic", "hide-scrollbars",
                 f"user-data-dir={folder}/profile"):  # fmt: skip
        options.add_argument(f"--{flag}")
    with webdriver.Chrome(options, Service("/usr/bin/chromedriver")) as browser:
        for name, height in HEIGHTS.items():
            size = {"width": 1200, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get((folder / f"{name}.html").as_uri())
            if name == "tape":
                browser.execute_script("show(arguments[0])", BACKWARD_STEP)
            picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
            picture.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)


def main(loss=None):
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        tape_walk.walk()[0].save_page(folder / "tape.html")
        rope_lab.main(folder / "rope_lab.html")
        photograph(folder)
    if loss:
        shutil.copy(loss, PICTURES / "loss.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
