"""The command line of the vector runner."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def kinds() -> list[str]:
    """The kinds there are: the modules beside this one."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main(arguments: list[str]) -> int:
    """Run one kind over a folder; returns the exit status."""
    if not 1 <= len(arguments) <= 2 or arguments[0] not in kinds():
        print(f"usage: python -m tools.vectors {{{'|'.join(kinds())}}} [FOLDER]", file=sys.stderr)
        return 2
    kind = importlib.import_module(f"tools.vectors.{arguments[0]}")
    folder = Path(arguments[1]) if len(arguments) == 2 else Path(kind.DEFAULT)
    if not folder.is_dir():
        print(f"{folder} is no folder; name one with cases of kind {arguments[0]}", file=sys.stderr)
        return 2
    passed = failed = 0
    for outcome in kind.run(folder):
        if outcome.differences:
            failed += 1
            print(f"{outcome.name}: {'; '.join(outcome.differences)}")
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
