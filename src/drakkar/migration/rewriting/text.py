"""Changes made in the text of one YAML document, by the marks of its nodes.

Only lines that change are touched. Comments are never lost: one that stood beside something that goes away moves to a
line of its own. JSON is YAML's flow style; it keeps its quotes and its lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from drakkar.kube import yamltext
from drakkar.migration.rewriting.changes import Change

__all__ = ["CannotEdit", "dumped", "edited"]

_BLOCKS: Final = ("|", ">")


class CannotEdit(ValueError):
    """The text has a shape in which this change cannot be made line by line."""


def edited(text: str, changes: Sequence[Change]) -> str:
    """The text with the changes made. Raises CannotEdit."""
    for change in changes:
        try:
            trees = list(yamltext.trees(text))
        except yamltext.YamlError as error:
            raise CannotEdit(str(error)) from None
        if len(trees) != 1:
            raise CannotEdit("the text is not one document")
        text = _Editor(text, trees[0].node).made(change)
    return text


class _Place(NamedTuple):
    """A node with what holds it, and its number there."""

    holder: Any
    number: int
    node: Any


class _Editor:
    def __init__(self, text: str, root: Any) -> None:
        self._text = text
        self._root = root
        starts = [0]
        starts += [match.end() for match in re.finditer(r"\r\n|\r|\n|\x85|\u2028|\u2029", text)]
        self._lines = starts

    def made(self, change: Change) -> str:
        if not change.steps:
            raise CannotEdit("the whole document changes")
        if change.action == "drop":
            return self._drop(self._find(change.steps))
        holder = self._find(change.steps[:-1]).node if len(change.steps) > 1 else self._root
        last = change.steps[-1]
        if change.action == "insert":
            return self._insert_item(holder, int(last), change.value)
        number = self._number(holder, last)
        if number is not None:
            return self._replace(_Place(holder, number, self._child(holder, number)), change.value)
        return self._insert_pair(holder, str(last), change)

    # -- finding -----------------------------------------------------------------------------------------------------

    def _find(self, steps: Sequence[str | int]) -> _Place:
        holder, number, node = None, 0, self._root
        for step in steps:
            found = self._number(node, step)
            if found is None:
                raise CannotEdit(f"there is no {step} in the text itself")
            holder, number, node = node, found, self._child(node, found)
        return _Place(holder, number, node)

    @staticmethod
    def _number(node: Any, step: str | int) -> int | None:
        if node.id == "sequence":
            return step if isinstance(step, int) and step < len(node.value) else None
        if node.id != "mapping":
            return None
        return next((number for number, (key, _) in enumerate(node.value) if key.value == step), None)

    @staticmethod
    def _child(node: Any, number: int) -> Any:
        return node.value[number] if node.id == "sequence" else node.value[number][1]

    def _at(self, mark: Any) -> int:
        return int(self._lines[mark.line] + mark.column)

    def _begin(self, holder: Any, number: int) -> int:
        """Where an entry begins: its key, or the item itself."""
        entry = holder.value[number]
        return self._at((entry[0] if holder.id == "mapping" else entry).start_mark)

    def _end(self, node: Any) -> int:
        """Where the text of a value ends, without what follows on its line."""
        if node.id == "scalar":
            end = self._at(node.end_mark)
            if node.style in _BLOCKS:
                while end > 0 and self._text[end - 1] in " \t\r\n":
                    end -= 1
            return end
        if node.flow_style:
            return self._at(node.end_mark)
        if not node.value:
            return self._at(node.end_mark)
        last = node.value[-1]
        return self._end(last[1] if node.id == "mapping" else last)

    def _entry_end(self, holder: Any, number: int) -> int:
        entry = holder.value[number]
        if holder.id == "mapping":
            key, value = entry
            colon = self._text.index(":", self._at(key.end_mark)) + 1
            return max(colon, self._end(value)) if self._at(value.start_mark) >= colon else colon
        return self._end(entry)

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _line_end(self, position: int) -> int:
        """After the line break that ends the line of a position."""
        found = self._text.find("\n", position)
        return len(self._text) if found < 0 else found + 1

    # -- removing ----------------------------------------------------------------------------------------------------

    def _drop(self, place: _Place) -> str:
        holder, number = place.holder, place.number
        self._own(holder)
        if holder.flow_style:
            return self._drop_flow(holder, number)
        if len(holder.value) == 1:
            raise CannotEdit("a block that would be empty")
        begin, end = self._begin(holder, number), self._entry_end(holder, number)
        if holder.id == "sequence":
            begin = self._dash(begin)
        start, stop = self._line_start(begin), self._line_end(end)
        comments = self._comments(begin, end, stop)
        lead = self._text[start:begin]
        kept = "".join(f"{' ' * (begin - start)}{comment}\n" for comment in comments)
        if lead.strip():  # the first key of an item: what follows moves up to the dash
            following = self._begin(holder, number + 1)
            between = self._text[stop : self._line_start(following)]
            if between.strip() or comments:
                raise CannotEdit("comments between a dash and the key that moves up to it")
            return self._text[:begin] + self._text[following:]
        return self._text[:start] + kept + self._text[stop:]

    def _drop_flow(self, holder: Any, number: int) -> str:
        if len(holder.value) == 1:
            begin, end = self._begin(holder, 0), self._entry_end(holder, 0)
            inside = self._at(holder.start_mark) + 1, self._at(holder.end_mark) - 1
            if self._comments(*inside, inside[1]):
                raise CannotEdit("a comment inside braces")
            return self._text[: inside[0]] + self._text[inside[1] :] if begin < end else self._text
        if number + 1 < len(holder.value):
            begin, end = self._begin(holder, number), self._begin(holder, number + 1)
        else:
            begin, end = self._entry_end(holder, number - 1), self._entry_end(holder, number)
        if "#" in self._text[begin:end] and self._comments(begin, end, end):
            raise CannotEdit("a comment inside braces")
        return self._text[:begin] + self._text[end:]

    def _dash(self, position: int) -> int:
        found = self._text.rfind("-", 0, position)
        if found < 0 or self._text[found + 1 : position].strip():
            raise CannotEdit("an item without a dash of its own line")
        return found

    def _comments(self, begin: int, end: int, stop: int) -> list[str]:
        """The comments between two places and behind the second, on its line."""
        spans = sorted(self._scalars(self._root, begin, end))
        found = []
        position = begin
        while position < stop:
            line_stop = min(self._line_end(position), stop)
            at = position
            while (at := self._text.find("#", at, line_stop)) >= 0:
                inside = any(left <= at < right for left, right in spans)
                if not inside and (at == 0 or self._text[at - 1] in " \t\n"):
                    found.append(self._text[at:line_stop].rstrip())
                    break
                at += 1
            position = line_stop
        return found

    def _scalars(self, node: Any, begin: int, end: int) -> Iterator[tuple[int, int]]:
        left, right = self._at(node.start_mark), self._at(node.end_mark)
        if right < begin or left > end:
            return
        if node.id == "scalar":
            yield left, max(right, left)
            return
        for entry in node.value:
            for child in entry if node.id == "mapping" else (entry,):
                yield from self._scalars(child, begin, end)

    # -- putting -----------------------------------------------------------------------------------------------------

    def _replace(self, place: _Place, value: Any) -> str:
        holder, number, node = place
        self._own(holder)
        begin, end = self._begin(holder, number), self._entry_end(holder, number)
        flow = holder.flow_style or (node.id != "scalar" and node.flow_style and node.value)
        start = self._at(node.start_mark)
        if node.id == "scalar" and not isinstance(value, dict | list):
            if node.style == "|" and isinstance(value, str):
                return self._text[:start] + self._literal(holder, number, value, start, end) + self._text[end:]
            json_like = self._json_like(holder)
            shown = _inline(value, json_like=json_like, style=node.style, flow=bool(holder.flow_style))
            if node.style is None and not node.value:  # `key:` with nothing behind it
                return self._text[:end] + " " + shown + self._text[end:]
            return self._text[:start] + shown + self._text[end:]
        if self._comments(begin, end, end):
            raise CannotEdit("comments inside what is replaced")
        if flow or value in ({}, []):
            shown = _inline(value, json_like=self._json_like(holder))
            colon = (
                self._text.index(":", self._at(holder.value[number][0].end_mark)) + 1 if holder.id == "mapping" else 0
            )
            if colon:
                return self._text[:colon] + " " + shown + self._text[end:]
            return self._text[:start] + shown + self._text[end:]
        column = begin - self._line_start(begin)
        shown = _block({holder.value[number][0].value: value} if holder.id == "mapping" else value, column)
        return self._text[:begin] + shown.rstrip("\n") + self._text[end:]

    def _literal(self, holder: Any, number: int, value: str, start: int, end: int) -> str:
        old = self._text[start:end]
        header, _, body = old.partition("\n")
        match = re.match(r" *", body)
        indent = match[0] if match else " " * (self._begin(holder, number) + 2)
        if value.startswith((" ", "\n")) or re.search(r"[0-9]", header.partition("#")[0]):
            raise CannotEdit("a text with an indentation of its own")
        lines = value.rstrip("\n").split("\n")
        return header + "\n" + "\n".join(indent + line if line else "" for line in lines)

    def _insert_pair(self, holder: Any, key: str, change: Change) -> str:
        if holder.id != "mapping":
            raise CannotEdit("the place is no mapping in the text")
        self._own(holder)
        after = self._number(holder, change.after) if change.after else None
        if holder.flow_style:
            shown = f"{_inline(key, json_like=self._json_like(holder))}: " + _inline(
                change.value, json_like=self._json_like(holder)
            )
            return self._insert_flow(holder, after, shown)
        number = len(holder.value) - 1 if after is None else after
        if number < 0:
            raise CannotEdit("an empty block")
        begin = self._begin(holder, number)
        first = self._begin(holder, 0)
        column = first - self._line_start(first)
        if begin - self._line_start(begin) != column:
            raise CannotEdit("keys that do not stand below each other")
        return self._insert_lines(self._entry_end(holder, number), _block({key: change.value}, column, first=True))

    def _insert_item(self, holder: Any, number: int, value: Any) -> str:
        if holder.id != "sequence":
            raise CannotEdit("the place is no list in the text")
        self._own(holder)
        if holder.flow_style:
            after = number - 1 if number else None
            if number == 0 and holder.value:
                raise CannotEdit("an item before the first of a list in brackets")
            return self._insert_flow(holder, after, _inline(value, json_like=self._json_like(holder)))
        if not holder.value:
            raise CannotEdit("an empty list")
        dash = self._dash(self._begin(holder, min(number, len(holder.value) - 1)))
        column = dash - self._line_start(dash)
        shown = _block([value], column, first=True)
        if number < len(holder.value):
            start = self._line_start(dash)
            if self._text[start:dash].strip():
                raise CannotEdit("an item on the line of another one")
            return self._text[:start] + shown + self._text[start:]
        return self._insert_lines(self._end(holder.value[-1]), shown)

    def _insert_lines(self, end: int, shown: str) -> str:
        stop = self._line_end(end)
        before = self._text[:stop]
        if not before.endswith("\n"):
            return before + "\n" + shown.rstrip("\n")
        return before + shown + self._text[stop:]

    def _insert_flow(self, holder: Any, after: int | None, shown: str) -> str:
        if not holder.value:
            inside = self._at(holder.start_mark) + 1
            return self._text[:inside] + shown + self._text[self._at(holder.end_mark) - 1 :]
        number = len(holder.value) - 1 if after is None else after
        end = self._entry_end(holder, number)
        first = self._begin(holder, 0)
        line = self._line_start(first)
        alone = self._at(holder.start_mark) < line and not self._text[line:first].strip()
        gap = ",\n" + self._text[line:first] if alone else ", "
        return self._text[:end] + gap + shown + self._text[end:]

    @staticmethod
    def _json_like(holder: Any) -> bool:
        keys = [key for key, _ in holder.value] if holder.id == "mapping" else holder.value
        return bool(holder.flow_style) and any(key.id == "scalar" and key.style == '"' for key in keys)

    def _own(self, holder: Any) -> None:
        """Refuse to change a node that stands at two places."""
        if sum(1 for node in _nodes(self._root, set()) if node is holder) > 1 or _has_merge(holder):
            raise CannotEdit("an anchor shares this place with another one")


def _nodes(node: Any, above: set[int]) -> Iterator[Any]:
    yield node
    if node.id == "scalar" or id(node) in above:
        return
    for entry in node.value:
        yield from _nodes(entry[1] if node.id == "mapping" else entry, above | {id(node)})


def _has_merge(node: Any) -> bool:
    return node.id == "mapping" and any(key.value == "<<" for key, _ in node.value)


def _block(value: Any, column: int, *, first: bool = False) -> str:
    """A value in block style; every line but the first is indented, the first too if `first`."""
    lines = dumped(value).rstrip("\n").split("\n")
    pad = " " * column
    shown = [line if number == 0 and not first else pad + line if line else line for number, line in enumerate(lines)]
    return "\n".join(shown) + "\n"


def dumped(value: Any) -> str:
    """A value as YAML in block style, keys in their order, lists not indented, as kubectl prints it."""
    import yaml

    return str(yaml.dump(value, Dumper=_dumper(), sort_keys=False, width=4096, allow_unicode=True))


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts that Kubernetes would read as something else get quotes, texts of several lines stay lines."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

    def text(dumper: Any, data: str) -> Any:
        if "\n" in data and not data.startswith((" ", "\n")):
            return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|")
        try:
            plain = yamltext.load(f"k: {data}\n") == {"k": data}
        except yamltext.YamlError:
            plain = False
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')

    Dumper.add_representer(str, text)
    return Dumper


def _inline(value: Any, *, json_like: bool = False, style: str | None = None, flow: bool = True) -> str:
    """A value on one line: as JSON where its surroundings are, else as plain as it can be."""
    if json_like or style == '"':
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(key)}: {_inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(inner) for inner in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if style == "'" and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    try:
        if re.search(r"\n|^\s|\s$", value) is None:
            if not flow and yamltext.load(f"k: {value}") == {"k": value}:
                return value
            if not re.search(r"[,\[\]{}]", value) and yamltext.load(f"[{value}]") == [value]:
                return value
    except yamltext.YamlError:
        pass
    return json.dumps(value, ensure_ascii=False)
