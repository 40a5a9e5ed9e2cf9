"""Hosts for CDI generation as real trees, out of the data files in cases/cdi-generate (its README has the format)."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.tree import make_links, make_node, write_files
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine
from tests.vendors import nvml as mock

CASES = Path(__file__).parents[2] / "cases" / "cdi-generate"
#: Fixed, so that recordings are the same everywhere; nothing opens the nodes.
_MAJORS = {
    "nvidia": 195, "nvidia-uvm": 510, "nvidia-caps": 238, "nvidia-nvlink": 237, "nvidia-nvswitch": 236,
    "nvidia-caps-imex-channels": 235,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One call of the generator on a host, and where its recorded answer lies."""

    host: str
    name: str
    arguments: tuple[str, ...]
    recorded: bool

    @property
    def expected(self) -> Path:
        """The recorded answer."""
        return CASES / "expected" / f"{self.host}.{self.name}.json"


def hosts() -> list[str]:
    """The names of all hosts."""
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def runs(host: str) -> list[Run]:
    """The calls that a host's file asks for."""
    document = yaml.safe_load((CASES / f"{host}.yaml").read_text())
    ours = document.get("not recorded", [])
    found = {name: (words, True) for name, words in document["runs"].items()}
    found |= {name: (words, False) for name, words in (ours or {}).items()}
    return [Run(host, name, tuple(words), recorded) for name, (words, recorded) in found.items()]


def build(host: str, folder: Path) -> tuple[Path, Path]:
    """Makes the tree of a host below `folder`; returns its root and the file that the small NVML serves."""
    document: dict[str, Any] = yaml.safe_load((CASES / f"{host}.yaml").read_text())
    machine = _machine(document, folder)
    root = machine.driver_root
    for path in document.get("without", ()):
        target = root / path.lstrip("/")
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    version = machine.driver_version
    files = {path.replace("<V>", version): text for path, text in (document.get("files") or {}).items()}
    write_files(root, files)
    for path in document.get("programs") or ():
        write_files(root, {path: "#!/bin/sh\n"})
        (root / path.lstrip("/")).chmod(0o755)
    for path in document.get("folders") or ():
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, soname in (document.get("libraries") or {}).items():
        write_files(root, {path.replace("<V>", version): library(soname.replace("<V>", version))})
    links = {
        path.replace("<V>", version): to.replace("<V>", version) for path, to in (document.get("links") or {}).items()
    }
    make_links(root, links)
    for path, (major, minor, mode, *group) in (document.get("nodes") or {}).items():
        make_node(root, DeviceNode(path, major, minor, mode=mode))
        if group:
            os.chown(root / path.lstrip("/"), 0, group[0])
            (root / path.lstrip("/")).chmod(mode)
    if "ld.so.cache" in document:
        paths = [path.replace("<V>", version) for path in document["ld.so.cache"]]
        write_files(root, {"/etc/ld.so.cache": ld_cache(paths)})
    if document.get("nvml"):
        target = root / document["nvml"].lstrip("/").replace("<V>", version)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(mock.compiled(), target)
    served = folder / "machine.txt"
    text = mock.machine_file(machine)
    if "gpus" in document:
        text = _first_gpus(text, document["gpus"])
    for old, new in (document.get("served") or {}).items():
        assert old in text, old
        text = text.replace(old, new, 1)
    served.write_text(text + "".join(f"{chr(9).join(map(str, words))}\n" for words in document.get("more") or ()))
    return root, served


def _first_gpus(text: str, number: int) -> str:
    """The machine with only its first GPUs, without MIG."""
    lines = text.splitlines()
    gpus = [line for line in lines if line.startswith("gpu\t")][:number]
    return "\n".join([line for line in lines if line.startswith(("driver\t", "cuda\t"))] + gpus) + "\n"


def _machine(document: dict[str, Any], folder: Path) -> SimulatedMachine:
    name = document["machine"]
    first = build_machine(name, "host", folder / "host")
    state = msgspec.json.decode((folder / "host/machine.json").read_bytes())
    (folder / "host/machine.json").write_bytes(msgspec.json.encode(state | {"majors": _MAJORS}))
    del first
    machine = build_machine(name, "host", folder / "host")
    for entry in document.get("mig") or ():
        index, _, profile = entry.partition("=")
        machine.create_mig(int(index), profile)
    return machine


def library(soname: str) -> bytes:
    """A shared library with nothing in it but its SONAME ("" for none), for readers by segments and by sections."""
    strings = b"\0" + soname.encode() + b"\0"
    names = b"\0.dynstr\0.dynamic\0.shstrtab\0"
    head, program, section = 64, 56, 64
    at_strings = head + 2 * program
    at_dynamic = (at_strings + len(strings) + 7) & ~7
    entries = [(14, 1)] if soname else []
    entries += [(5, at_strings), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    at_names = at_dynamic + len(dynamic)
    at_sections = (at_names + len(names) + 7) & ~7
    total = at_sections + 4 * section
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, head, at_sections, 0, head, program, 2, section, 4, 3)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 4096)
    dyn = struct.pack("<IIQQQQQQ", 2, 4, at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8)
    body = (header + load + dyn + strings).ljust(at_dynamic, b"\0") + dynamic + names
    sections = bytes(section)
    sections += struct.pack("<IIQQQQIIQQ", 1, 3, 2, at_strings, at_strings, len(strings), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 9, 6, 2, at_dynamic, at_dynamic, len(dynamic), 1, 0, 8, 16)
    sections += struct.pack("<IIQQQQIIQQ", 18, 3, 0, 0, at_names, len(names), 0, 0, 1, 0)
    return body.ljust(at_sections, b"\0") + sections


def ld_cache(paths: list[str]) -> bytes:
    """A loader's cache with these libraries (x86-64), one of 32 bits before each, behind an old table."""
    entries, strings = [], b""
    at = 48 + 2 * len(paths) * 24
    for path in paths:
        for flags, text in ((0x0001, path.replace("/lib", "/lib32", 1)), (0x0303, path)):
            name = text.rpartition("/")[2].encode() + b"\0"
            entries.append(struct.pack("<iIIIQ", flags, at + len(strings), at + len(strings) + len(name), 0, 0))
            strings += name + text.encode() + b"\0"
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + struct.pack("<iII", 1, 0, 0)
    old += bytes(-len(old) % 8)
    new = struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(strings)) + b"".join(entries) + strings
    return old + new
