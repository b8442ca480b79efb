"""Coverage-guided fuzzing of what a checkpoint's author controls: a tensor file's header, and its configuration.

    pip install atheris
    python tests/stress/fuzz_guided.py [header|config] -max_total_time=120

Anything but a ValueError is a find, and so is a second without an answer (-timeout=1).
"""

import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["npgrad.safetensors_file", "npgrad.decoder.config", "npgrad.rope"]):
    from npgrad import decoder
    from npgrad.safetensors_file import read_header

FILE = Path(tempfile.mkdtemp()) / "model.safetensors"


def header(data):
    FILE.write_bytes(len(data).to_bytes(8, "little") + data + bytes(64))
    try:
        read_header(FILE)
    except ValueError:
        return


def config(data):
    try:
        decoder.Config.from_dict(json.loads(data))
    except (ValueError, RecursionError):  # json's own, for text that is no JSON, and for a thousand brackets
        return


if __name__ == "__main__":
    target = {"header": header, "config": config}[sys.argv.pop(1) if len(sys.argv) > 1 else "header"]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
