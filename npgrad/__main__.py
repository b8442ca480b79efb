"""The command line: `python -m npgrad` audits all primitives, `python -m npgrad check MODULE:FUNCTION` one function.

`python -m npgrad generate` continues a text; that one is `decoder.command`'s.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 if everything passes, 1 if something fails, 2 for what can't be run."""
    from .decoder import command as generation

    parser = argparse.ArgumentParser(prog="npgrad", description="Check derivatives numerically, or generate text.")
    commands = parser.add_subparsers(dest="command")
    audit = commands.add_parser("audit", help="check every registered primitive at its declared examples (the default)")
    audit.add_argument(
        "modules", nargs="*", metavar="MODULE", help="imported first: its primitives and examples count too"
    )
    check = commands.add_parser("check", help="check one function at its declared examples, or its default arguments")
    check.add_argument("function", metavar="MODULE:FUNCTION", help="where it is defined: package.module:function")
    generation.add_arguments(commands.add_parser("generate", help="continue a prompt with a Llama-shaped checkpoint"))
    options = parser.parse_args(arguments)
    if options.command == "generate":
        return generation.run(options)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the console script should find the same modules as python -m
    try:
        return (
            check_function(options.function)
            if options.command == "check"
            else run_audit(getattr(options, "modules", []))
        )
    except (ImportError, LookupError, TypeError) as error:
        print(f"npgrad: {error}", file=sys.stderr)
        return 2


def run_audit(modules: Sequence[str]) -> int:
    """One line for each function with examples, then what failed and what has none."""
    from .check.audit import audit, uncovered

    for module in modules:
        _imported(module)
    started, outcomes = time.perf_counter(), []
    for outcome in audit():
        outcomes.append(outcome)
        print(outcome, flush=True)
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    failures += [
        f"{name} is registered without an example: declare one with npgrad.check.example" for name in uncovered()
    ]
    print("\n\n".join(["", *failures]) if failures else "")
    coordinates = sum(outcome.coordinates for outcome in outcomes)
    largest = max((outcome.largest_error for outcome in outcomes), default=0.0)
    print(
        f"{len(outcomes)} functions, {coordinates} coordinates, largest relative error {largest:.1e}, "
        f"{len(failures)} failures, {time.perf_counter() - started:.1f} s"
    )
    return 1 if failures else 0


def check_function(path: str) -> int:
    """Check one function and print its reports."""
    from .check.audit import checked, load_examples, variants
    from .check.examples import Example

    module, _, name = path.partition(":")
    if not module or not name:
        raise LookupError(f"{path!r} names no function: write MODULE:FUNCTION")
    function: Any = _imported(module)
    for part in name.split("."):
        if not hasattr(function, part):
            raise LookupError(f"{module} has no {name}")
        function = getattr(function, part)
    examples = load_examples().get(function) or [Example(function, _defaults(function, path), {})]
    status = 0
    for example in examples:
        for label, of_arrays, args in variants(example):
            report = checked(of_arrays, args)
            print(f"{path}, {label}\n{report}\n")
            status |= not report or isinstance(report, str)
    return int(status)


def _imported(module: str) -> ModuleType:
    """The module; ImportError in one sentence for whatever its code does instead of being imported."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ImportError(f"{module} can't be imported: {type(error).__name__}: {error}") from error


def _defaults(function: Callable, path: str) -> tuple:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{path} has no examples, and no signature that could have default arguments") from error
    missing = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if missing:
        raise TypeError(
            f"{path} has no examples, and no default for {', '.join(missing)}: declare one with "
            f"npgrad.check.example({function.__name__}, …), or give every argument a default"
        )
    defaults = (p.default for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    return tuple(np.asarray(d) if isinstance(d, float) else d for d in defaults)


if __name__ == "__main__":
    sys.exit(main())
