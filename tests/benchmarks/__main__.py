"""npgrad beside what it is compared with, in one run, as a table of ratios.

    python tests/benchmarks                                    everything, on one thread: about ten minutes
    python tests/benchmarks decoder_step rotary --threads 2    some of it, on two

Every table's first line is a floor in NumPy; PyTorch, JAX, autograd and MyGrad join in where they are installed.
Results are compared before anything is timed. Systems take turns of a few calls; each figure is the median over its
calls. Matrix products run on one thread: with --threads 2 the decoder step by hand and npgrad's put the parts of the
batch on Python threads, PyTorch gets as many threads, JAX uses all cores whatever is said, and the others stay on one.
"""

import argparse
import importlib
import os

for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[name] = "1"  # read when NumPy is imported

THREADED = ("rotary", "attention", "decoder_step", "adamw")
TABLES = ("records", *THREADED, "generation", "recomputation", "checker")


def main():
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description="npgrad beside its peers")
    parser.add_argument("tables", nargs="*", metavar="table", help=f"some of {', '.join(TABLES)} (all)")
    parser.add_argument("--threads", type=int, default=1, help="for the systems that can use several (1)")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"no table called {', '.join(unknown)}: choose from {', '.join(TABLES)}")
    import numpy as np

    from npgrad import parallel

    kept = parallel.keep_memory()
    print(f"NumPy {np.__version__}, {options.threads} thread(s) of {os.cpu_count()}, freed memory kept: {kept}")
    for table in options.tables or TABLES:
        print()
        importlib.import_module(table).main(*[options.threads] if table in THREADED else [])


if __name__ == "__main__":
    main()
