"""CEL broken on purpose in six ways: random expressions must notice each of them.

python -m tools.fuzz_cel_mutants [--seconds 60]
"""

from __future__ import annotations

import sys
from typing import Any, Final

from drakkar.cel import comparisons, environment, estimate, logic, paths, types
from drakkar.cel.values import Failure
from drakkar.kube.quantity import Quantity
from tools import fuzz_cel, fuzz_mutants


def _strict_or(parts: list[tuple[int, Any]]) -> Any:
    def body(frame: Any) -> Any:
        for fixed, compute in parts:
            frame[0] += fixed
            value = compute(frame)
            if value is not False:
                return value
        return False

    return body


def _find_none(value: Any, key: Any) -> Any:
    found = _find(value, key)
    return None if type(found) is Failure and "index out" in found.message else found


_find = paths._find

MUTANTS: Final[fuzz_mutants.Mutants] = {
    "|| ends with the first error": (logic, "_or", _strict_or),
    "comparisons round their price down": (comparisons, "tenth", lambda size: size // 10),
    "quantities compare without their scale": (
        Quantity,
        "compare",
        lambda self, other: (self.unscaled > other.unscaled) - (self.unscaled < other.unscaled),
    ),
    "estimates forget what lists hold": (estimate._Estimator, "entries_of", lambda self, node: None),
    "the less general of two types is kept": (types, "most_general", lambda first, second: second),
    "an index beyond the list yields null": (paths, "_find", _find_none),
}


def noticed(name: str, seconds: float) -> int:
    """After how many cases the mutant gives another answer; 0 if it does not."""
    # Environments remember what calls resolved to.
    forget = environment._device_environment.cache_clear
    return fuzz_mutants.noticed(MUTANTS[name], fuzz_cel, seconds, forget=forget, batch=50)


if __name__ == "__main__":
    raise SystemExit(fuzz_mutants.main(sys.argv[1:], __doc__, MUTANTS, noticed))
