"""Run the benchmarks and print their tables: `make bench`, or `python -m bench [NAME…]`.

Each file of this folder that has a `main` is a benchmark; it prints its tables and answers whether its bounds hold:
`main(runs: int) -> bool`, or `main(arguments: list[str]) -> int` for those that are also commands of their own. The
machine's load is printed with every table, since a figure from a busy machine means little.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(
        path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_") and "\ndef main(" in path.read_text()
    )


def _holds(benchmark: Callable[..., object], runs: int) -> bool:
    if "runs" in inspect.signature(benchmark).parameters:
        return bool(benchmark(runs))
    return not benchmark([])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names())}; all by default")
    parser.add_argument("--runs", type=int, default=10, help="runs of which the median is taken")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(names())
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    bad = []
    for name in chosen.names or names():
        load = os.getloadavg()[0]
        print(f"\n## {name}  (load {load:.1f} on {os.cpu_count()} cores)\n", flush=True)
        if not _holds(importlib.import_module(f"bench.{name}").main, chosen.runs):
            bad.append(name)
    if bad:
        sys.exit(f"bench: bounds missed in {', '.join(bad)}")


if __name__ == "__main__":
    main()
