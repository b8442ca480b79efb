"""Fill the disk up while states are written: a run goes on, loses nothing, and saves again when there is room.

    python tests/stress/full_disk.py FOLDER          FOLDER: on a small file system, such as a tmpfs of 16 MB
    python tests/stress/full_disk.py                 a limit on the size of files instead

20 times: train and save, take the room away, save and be refused, compare files and memory with before, give the room
back, save and read it again.
"""

import resource
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from npgrad import optim, training
from npgrad import tree as trees

SIZE = 120_000


def limited(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fill(folder, left):
    """Leave so many bytes of the file system free; the file that takes the rest."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            stream.truncate(max(0, stream.tell() - left))
    return ballast


def tries(folder, own_file_system, count=20):
    rng = np.random.default_rng(0)
    optimizer = optim.AdamW({"w": rng.normal(size=SIZE)}, 1e-3)
    refused = 0
    for number in range(1, count + 1):
        optimizer.update({"w": rng.normal(size=SIZE)})
        training.save(folder / "run", optimizer, rng, step=2 * number)
        files = {file.name: file.read_bytes() for file in (folder / "run").iterdir()}
        state, drawn = optimizer.state(), rng.bit_generator.state
        left = number * 3 * 8 * SIZE // (count + 1)
        if own_file_system:
            ballast = fill(folder, left)
        else:
            limited(left)
        try:
            training.save(folder / "run", optimizer, rng, step=2 * number + 1)
        except OSError as error:
            refused += "could not be written" in str(error)
        if own_file_system:
            ballast.unlink()
        else:
            limited(resource.RLIM_INFINITY)
        assert {file.name: file.read_bytes() for file in (folder / "run").iterdir()} == files
        assert all(map(np.array_equal, trees.leaves(state), trees.leaves(optimizer.state())))
        assert rng.bit_generator.state == drawn
        training.save(folder / "run", optimizer, rng, step=2 * number + 1)
        again, other = optim.AdamW({"w": np.zeros(SIZE)}, 1e-3), np.random.default_rng(9)
        training.resume(folder / "run", again, other)
        assert all(map(np.array_equal, trees.leaves(state), trees.leaves(again.state())))
    return refused


def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if len(sys.argv) > 1:
        refused = tries(Path(sys.argv[1]), own_file_system=True)
    else:
        with tempfile.TemporaryDirectory() as folder:
            refused = tries(Path(folder), own_file_system=False)
    print(f"20 tries, {refused} writes refused, 0 losses")
    return 0 if refused == 20 else 1


if __name__ == "__main__":
    sys.exit(main())
