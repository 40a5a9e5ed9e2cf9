"""Files as documents whose every field knows its line and column.

A finding that names a line is read, one that names an object is searched for. YAML is read by `kube.yamltext`, as
kubectl and helm read it, and its nodes know their places. Damaged, cyclic or exploding files end in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.kube.paths import value_at
from drakkar.migration.findings import Finding, codes, render_path

__all__ = [
    "Csv",
    "Document",
    "Source",
    "Steps",
    "Toml",
    "items_at",
    "read_bytes",
    "read_file",
    "read_folder",
]

Steps = tuple[str | int, ...]
"""A path: names and indexes from the top of the object."""

MAX_BYTES: Final = 16 << 20
_IGNORED: Final = re.compile(r"drakkar:\s*ignore\[([\w, -]+)\]\s*(\S.*)?$")


def items_at(value: Any, *steps: str | int) -> list[Any]:
    """The entries of a list at a path that are objects."""
    found = value_at(value, steps)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


@lru_cache(maxsize=8)
def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n|\x85|\u2028|\u2029", text))]


@dataclass(eq=False)
class Source:
    """What documents and counter files share: where they come from, and which findings a comment switches off."""

    file: str
    text: str
    reference: str

    def place(self, steps: Steps) -> tuple[int, int]:
        """Line and column of a field, of the innermost one that exists; both count from 1."""
        raise NotImplementedError

    def finding(self, code: str, steps: Steps, message: str, fix: str = "") -> Finding:
        """A finding at a field of this source."""
        line, column = self.place(steps)
        path = self.path(steps)
        severity = codes()[code].severity
        return Finding(code, severity, self.reference, path, self.file, line, column, message, fix, tuple(steps))

    def path(self, steps: Steps) -> str:
        """The path as text."""
        return render_path(steps)

    def ignored(self, finding: Finding) -> bool:
        """Whether a comment with a reason, on the line or alone on the line above, switches the finding off."""
        lines = self.lines
        for number in (finding.line - 1, finding.line - 2):
            if 0 <= number < len(lines) and (match := _IGNORED.search(lines[number])):
                alone = lines[number].lstrip().startswith("#")
                names = {name.strip() for name in match[1].split(",")}
                if match[2] and finding.code in names and (alone or number == finding.line - 1):
                    return True
        return False

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file."""
        return self.text.split("\n")

    @cached_property
    def line_starts(self) -> list[int]:
        """Where the lines begin, as YAML counts lines; worked out once for all documents of a file."""
        return _line_starts(self.text)


@dataclass(eq=False)
class Document(Source):
    """One YAML document, or one item of a List."""

    value: dict[str, Any] = field(default_factory=dict)
    node: Any = None
    chart: str = ""
    """For Helm values: the stem of the file name, such as `dra`."""

    @property
    def kind(self) -> str:
        """The kind, "" if there is none."""
        kind = self.value.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def api_version(self) -> str:
        """The apiVersion, "" if there is none."""
        version = self.value.get("apiVersion")
        return version if isinstance(version, str) else ""

    @property
    def group(self) -> str:
        """The API group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version inside the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, empty if there are none."""
        metadata = self.value.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def name(self) -> str:
        """The name, "" if there is none."""
        name = self.metadata.get("name")
        return name if isinstance(name, str) else ""

    @property
    def namespace(self) -> str:
        """The namespace as written, "" if there is none."""
        namespace = self.metadata.get("namespace")
        return namespace if isinstance(namespace, str) else ""

    def at(self, steps: Iterable[str | int]) -> Any:
        """The value of a field, None if it does not exist."""
        return value_at(self.value, steps)

    def place(self, steps: Steps) -> tuple[int, int]:
        """Line and column of a field: of its key in a mapping, of the item in a sequence."""
        node, mark = self.node, self.node.start_mark
        for step in steps:
            if isinstance(step, int):
                if node.id != "sequence" or step >= len(node.value):
                    break
                node = node.value[step]
                mark = node.start_mark
                continue
            pair = next((pair for pair in node.value if pair[0].value == step), None) if node.id == "mapping" else None
            if pair is None:
                break
            mark, node = pair[0].start_mark, pair[1]
        return mark.line + 1, mark.column + 1


@dataclass(eq=False)
class Csv(Source):
    """A counter file of the exporter; a step of its paths is a line number."""

    def place(self, steps: Steps) -> tuple[int, int]:
        """The line itself."""
        return (int(steps[0]), 1) if steps else (1, 1)

    def path(self, steps: Steps) -> str:
        """`line[7]`, or `$` for the whole file."""
        return f"line[{steps[0]}]" if steps else "$"

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line number and columns of every line that is neither empty nor a comment."""
        for number, line in enumerate(self.lines, 1):
            text = line.strip()
            if text and not text.startswith("#"):
                yield number, [column.strip() for column in text.split(",")]


@dataclass(eq=False)
class Toml(Source):
    """A configuration in TOML, such as containerd's."""

    value: dict[str, Any] = field(default_factory=dict)

    def place(self, steps: Steps) -> tuple[int, int]:
        """The line that sets the last name of a path inside its table, as far as one can be found."""
        names = [str(step) for step in steps]
        for number, line in enumerate(self.lines, 1):
            if names and re.match(rf"""\s*["']?{re.escape(names[-1])}["']?\s*=""", line):
                return number, len(line) - len(line.lstrip()) + 1
        for number, line in enumerate(self.lines, 1):
            if names and line.lstrip().startswith("[") and names[-1] in line:
                return number, 1
        return 1, 1


def _toml(name: str, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _unreadable(name, str(error)) from None


def read_folder(folder: Path) -> list[Source]:
    """Every YAML, JSON, CSV and TOML file under a folder, by name; a single file is a folder of one.

    Findings name files by the path given here. Raises DrakkarError for what does not exist or cannot be read.
    """
    if not folder.exists():
        raise DrakkarError(
            f"{folder} does not exist", reason="NoSuchFile", subject=str(folder), expected="a file or folder to review"
        )
    if not folder.is_dir():
        return read_file(folder)
    found: list[Source] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        if path.suffix in (".yaml", ".yml", ".json", ".csv", ".toml") and not hidden and path.is_file():
            found += read_file(path)
    return found


def read_file(path: Path) -> list[Source]:
    """The documents of one file. Raises DrakkarError if it cannot be read."""
    name = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(name, error.strerror or str(error)) from None
    return read_bytes(data, name)


def read_bytes(data: bytes, name: str) -> list[Source]:
    """The documents of content that is known by a name. Raises DrakkarError if it cannot be read."""
    if len(data) > MAX_BYTES:
        raise _unreadable(name, f"it has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(name, f"byte {error.start} is not UTF-8") from None
    short = name.rpartition("/")[2]
    if short.endswith(".csv"):
        return [Csv(name, text, f"CSV/{short}")]
    if short.endswith(".toml"):
        return [Toml(name, text, f"TOML/{short}", _toml(name, text))]
    return list(_documents(name, text, _stem(short)))


def _stem(file_name: str) -> str:
    return re.sub(r"\.(ya?ml|json)$", "", file_name)


def _documents(name: str, text: str, stem: str) -> Iterator[Document]:
    values = stem == "values" or stem.endswith(".values") or stem.startswith("values-")
    for value, node in _trees(name, text):
        if not isinstance(value, dict):  # empty documents, and lists such as JSON patches of kustomize
            continue
        if values and "kind" not in value:
            chart = stem.removesuffix(".values").removeprefix("values-")
            yield Document(name, text, f"Values/{chart}", value, node, chart)
        elif value.get("kind") == "List" and isinstance(value.get("items"), list):
            items = next(pair[1] for pair in node.value if pair[0].value == "items")
            for item, inner in zip(value["items"], items.value, strict=True):
                if isinstance(item, dict):
                    yield _document(name, text, stem, item, inner)
        else:
            yield _document(name, text, stem, value, node)


def _document(name: str, text: str, stem: str, value: dict[str, Any], node: Any) -> Document:
    metadata = value.get("metadata")
    own = metadata.get("name") if isinstance(metadata, Mapping) else None
    return Document(name, text, f"{value.get('kind') or 'Rules'}/{own or stem}", value, node)


def _trees(name: str, text: str) -> Iterator[tuple[Any, Any]]:
    try:
        for tree in yamltext.trees(text):
            yield tree.value, tree.node
    except yamltext.YamlError as error:
        column = f", column {error.column}" if error.column else ""
        raise _unreadable(name, (f"line {error.line}{column}: " if error.line else "") + error.problem) from None


def _unreadable(name: str, problem: str) -> DrakkarError:
    return DrakkarError(
        f"cannot read {name}: {problem}",
        reason="UnreadableFile",
        subject=name,
        expected="YAML as kubectl and helm read it, or the counter file of the exporter",
        next_step="render templates first (helm template, kustomize build)",
    )
