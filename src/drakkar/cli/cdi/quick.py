"""The commands that runtimes and scripts call once per container, without click: loading it would take half their time.

Only the plainest call is taken, options spelt out and known; for everything else, help and mistakes above all, the
answer is "not mine" and click decides. What is taken runs the very functions that click would have called.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["quickly"]

_OPTIONS = {"list": {"--spec-dir", "--output"}, "inject": {"--spec-dir", "--device"}}
_SPELLINGS = {"-o": "--output"}


def quickly(arguments: Sequence[str]) -> bool:
    """Runs `drakkar cdi ARGUMENTS` if it is one of the plain calls; False where click must look at it.

    Raises:
        DrakkarError: as the command itself.
    """
    if not arguments or arguments[0] not in _OPTIONS:
        return False
    given: dict[str, list[str]] = {}
    words: list[str] = []
    rest = iter(arguments[1:])
    for word in rest:
        if word == "-" or not word.startswith("-"):
            words.append(word)
            continue
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = _SPELLINGS.get(option, option)
        if option not in _OPTIONS[arguments[0]]:
            return False
        if not equals:
            value = next(rest, "")
        if not value:
            return False
        given.setdefault(option, []).append(value)
    directories, devices, output = (given.get(key, []) for key in ("--spec-dir", "--device", "--output"))
    if arguments[0] == "list" and not words and (not output or output in (["table"], ["json"])):
        _load_msgspec()
        from drakkar.cli.cdi.sources import print_devices

        print_devices(directories, output[0] if output else "table")
        return True
    if arguments[0] == "inject" and devices and len(words) == 1:
        _load_msgspec()
        from drakkar.cli.cdi.sources import print_injection

        print_injection(directories, devices, words[0])
        return True
    return False


def _load_msgspec() -> None:
    """Loads msgspec as where `typing_extensions` is not installed: it then takes the functions of `typing`.

    Both do for us, and the package (with `inspect`, which it loads) is a fifth of a command's time.
    """
    import sys

    absent = "typing_extensions" not in sys.modules
    if absent:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        if absent:
            del sys.modules["typing_extensions"]
