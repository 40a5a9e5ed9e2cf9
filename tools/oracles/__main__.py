"""Build an oracle if its sources changed and print the program's path: `python -m tools.oracles [NAME…]`."""

from __future__ import annotations

import sys

from tools.oracles import OracleError, names, program


def main(arguments: list[str]) -> int:
    """The exit status: 0 with one path a line, 1 with the reason."""
    try:
        for name in arguments or names():
            print(program(name), flush=True)
    except OracleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
