"""Run the benchmarks and print their tables: `make bench`, or `python -m bench [NAME…]`.

Each file of this folder that has a `main(runs: int) -> bool` is a benchmark; it prints one table and answers whether
its bounds hold. The machine's load is printed with every table, since a figure from a busy machine means little.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(
        path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_") and "\ndef main(" in path.read_text()
    )


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
        if not importlib.import_module(f"bench.{name}").main(chosen.runs):
            bad.append(name)
    if bad:
        sys.exit(f"bench: bounds missed in {', '.join(bad)}")


if __name__ == "__main__":
    main()
