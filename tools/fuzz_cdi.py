"""Damaged CDI files, by the thousand: whatever is read, nothing but a `CdiError` may come out.

    python -m tools.fuzz_cdi --seconds 120 [--seed 1]

Texts of the recorded cases and of `cases/cdi/bad` are cut, spliced, flipped and sprinkled with what YAML and JSON are
proud of. Each result is read under every profile, written and read back, downgraded, injected, and laid beside a good
file that must stay usable. A finding is made smaller, printed with its seed, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from drakkar.injection.cache import CdiCache
from drakkar.injection.errors import CdiError
from drakkar.injection.spec import CdiSpec, Profile
from drakkar.injection.versions import VERSIONS

CASES = Path(__file__).parents[1] / "cases" / "cdi"
GOOD = b'cdiVersion: 0.5.0\nkind: good.example/gpu\ndevices: [{name: "0", containerEdits: {env: [A=b]}}]\n'
SLOW_S = 10.0
TOKENS = [
    token.encode("utf-8", "surrogatepass")
    for token in (
        *(
            "&a ",
            "*a",
            "<<: *a",
            "<<: ",
            "? ",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "#",
            "|\n",
            ">-\n",
            "---\n",
            "...\n",
        ),
        *(
            "!!str ",
            "!!int ",
            "!!float ",
            "!!bool ",
            "!!null ",
            "!!binary ",
            "!!set ",
            "!!python/object/apply:os.system ",
        ),
        *(
            "%YAML 1.2\n---\n",
            "%TAG ! tag:x,2000:\n",
            "null",
            "~",
            ".nan",
            "-.inf",
            "0o17",
            "0x1f",
            "1:0",
            "1e400",
            "08",
        ),
        *(
            "9" * 40,
            "-1",
            "3.5",
            "yes",
            "\t",
            "\r\n",
            "\x00",
            "\x85",
            "\u2028",
            "\ufeff",
            "\U0001f600",
            "\\ud800",
            "\\/",
        ),
        *("devices", "containerEdits", "deviceNodes", "hooks", "env", "netDevices", "intelRdt", "annotations", "name"),
        *(
            "cdiVersion",
            "kind",
            "path",
            "major",
            "minor",
            "fileMode",
            "additionalGids",
            "permissions",
            "none",
            '"',
            "'",
        ),
        *("[[[[[[[[", "{{{{{{{{", "a: " * 30, "- " * 30, "\n" * 9, " " * 40, "\ud800"),
    )
]


def corpus() -> list[bytes]:
    """Texts to start from."""
    texts = [path.read_bytes() for path in sorted((CASES / "bad").iterdir())]
    for path in sorted(CASES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            if case["kind"] == "load":
                texts.append(case["text"].encode() if "text" in case else base64.b64decode(case["b64"]))
    return [text for text in texts if len(text) < 20_000]


def damaged(text: bytes, texts: list[bytes], chance: random.Random) -> bytes:
    """One to six changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        text = chance.choice(_CHANGES)(text, texts, chance)
    return text[:60_000]


def _flip(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    if not text:
        return bytes([chance.randrange(256)])
    at = chance.randrange(len(text))
    return text[:at] + bytes([text[at] ^ (1 << chance.randrange(8))]) + text[at + 1 :]


def _insert(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    at = chance.randint(0, len(text))
    return text[:at] + chance.choice(TOKENS) + text[at:]


def _cut(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    start = chance.randint(0, len(text))
    return text[:start] + text[start + chance.randint(0, 40) :]


def _splice(text: bytes, texts: list[bytes], chance: random.Random) -> bytes:
    other = chance.choice(texts)
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _repeat(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    start = chance.randint(0, len(text))
    part = text[start : start + chance.randint(1, 60)]
    return text[:start] + part * chance.choice((2, 3, 50)) + text[start:]


def _swap_lines(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    lines = text.split(b"\n")
    chance.shuffle(lines[chance.randrange(len(lines)) :])
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _encode(text: bytes, _: list[bytes], chance: random.Random) -> bytes:
    return text.decode("utf-8", "replace").encode(
        chance.choice(("utf-16", "utf-8-sig", "utf-16-be", "latin-1")), "replace"
    )


_CHANGES: list[Callable[[bytes, list[bytes], random.Random], bytes]] = [
    *[_insert] * 5,
    *[_flip] * 3,
    *[_cut] * 3,
    *[_splice] * 2,
    *[_repeat] * 2,
    _swap_lines,
    _encode,
]


def attempt(text: bytes, folder: Path) -> tuple[str, str]:
    """How reading went (loaded, refused), and what is wrong with that; "" where nothing is."""
    start = time.monotonic()
    outcome, wrong = "refused", ""
    try:
        for profile in get_args(Profile):
            try:
                spec = CdiSpec.parse(text, file="x.yaml", profile=profile)
            except CdiError as error:
                wrong = wrong or _unclear(error)
                continue
            if profile == "default":
                outcome = "loaded"
                _use(spec)
        wrong = wrong or _beside_a_good_file(text, folder)
    except CdiError as error:
        wrong = f"CdiError outside reading: {error}"
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    took = time.monotonic() - start
    return outcome, wrong or (f"took {took:.1f} s" if took > SLOW_S else "")


def _unclear(error: CdiError) -> str:
    text = str(error)
    if not text.startswith("x.yaml: ") or "\n" in text:
        return f"an error that is not one sentence about its file: {text!r}"
    json.dumps(error.to_dict())
    return ""


def _use(spec: CdiSpec) -> None:
    again = CdiSpec.from_object(spec.to_dict())
    if again.to_dict() != spec.to_dict():
        raise AssertionError("writing and reading back gives something else")
    for version in VERSIONS:
        try:
            spec.downgraded(version)
        except CdiError:
            continue
    names = spec.qualified_names()
    if not names or not spec.minimum_version:
        raise AssertionError("a loaded file without devices or version")


def _beside_a_good_file(text: bytes, folder: Path) -> str:
    (folder / "a.yaml").write_bytes(text)
    (folder / "z.yaml").write_bytes(GOOD)
    with CdiCache([folder], auto_refresh=False) as cache:
        if "good.example/gpu=0" not in cache.devices() and "good.example/gpu=0" not in cache.conflicts():
            return "a good file beside it does not work"
        for name in cache.devices()[:3]:
            try:
                cache.inject({"process": {"env": ["A=1"]}}, [name])
            except CdiError:  # e.g. a device node that this machine does not have
                continue
        if len(cache.errors().get(str(folder / "a.yaml"), [])) > 1 and not cache.conflicts():
            return f"more than one error: {cache.errors()}"
    return ""


def smaller(text: bytes, folder: Path, kind: str) -> bytes:
    """The text with as much as possible taken out that still goes wrong in the same way."""
    size = len(text) // 2
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if attempt(shorter, folder)[1].partition(":")[0] == kind:
                text = shorter
            else:
                at += size
        size //= 2
    return text


def main() -> int:
    """Fuzz for a while; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_cdi", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    chosen = parser.parse_args()
    texts = corpus()
    counted: Counter[str] = Counter()
    until = time.monotonic() + chosen.seconds
    print(f"seed {chosen.seed}, {len(texts)} texts to start from", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while time.monotonic() < until or not counted:
            chance = random.Random(f"{chosen.seed}/{counted.total()}")
            text = damaged(chance.choice(texts), texts, chance)
            outcome, wrong = attempt(text, folder)
            counted[outcome] += 1
            if wrong:
                print(f"case {counted.total() - 1}: {wrong}", file=sys.stderr)
                print(repr(smaller(text, folder, wrong.partition(":")[0])), file=sys.stderr)
                return 1
    print(
        f"{counted.total()} texts, {counted['loaded']} loaded, {counted['refused']} refused, nothing but clear errors"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
