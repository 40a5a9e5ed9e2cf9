"""Changes made by ruamel.yaml's round trip: for documents whose nodes are shared by anchors and merges.

Shared nodes get copies of their own first, since a change is meant for one place; comments, order and quotes stay,
indentation is that of the document's first list.
"""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Sequence
from typing import Any

from drakkar.migration.rewriting.changes import Change

__all__ = ["round_trip"]


def round_trip(text: str, changes: Sequence[Change]) -> str:
    """The text with the changes made. Raises ruamel.yaml's YAMLError, LookupError or TypeError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    offset = _list_offset(text)
    yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
    root = _unshared(yaml.load(text), set())
    for change in changes:
        holder = root
        for step in change.steps[:-1]:
            holder = holder[step]
        last: Any = change.steps[-1]
        if change.action == "drop":
            del holder[last]
        elif change.action == "insert":
            holder.insert(last, copy.deepcopy(change.value))
        elif isinstance(holder, CommentedMap) and last not in holder and change.after in holder:
            holder.insert(list(holder).index(change.after) + 1, last, copy.deepcopy(change.value))
        else:
            holder[last] = copy.deepcopy(change.value)
    out = io.StringIO()
    yaml.dump(root, out)
    made = out.getvalue()
    return made if text.endswith("\n") else made.rstrip("\n")


def _list_offset(text: str) -> int:
    match = re.search(r"^( *)[\w.\"'/-]+:[^\S\n]*(?:#.*)?\n( *)- ", text, re.MULTILINE)
    return max(0, len(match[2]) - len(match[1])) if match else 0


def _unshared(node: Any, seen: set[int]) -> Any:
    """The same values, each node once; merges written out."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(node, CommentedMap | CommentedSeq):
        if id(node) in seen:
            node = copy.deepcopy(node)
        seen.add(id(node))
        node.anchor.value = None
    if isinstance(node, CommentedMap):
        if getattr(node, "merge", None):
            flat = CommentedMap()
            for key, value in node.items():
                flat[key] = value
            flat.ca.comment = node.ca.comment
            flat.ca.items.update(node.ca.items)
            node = flat
        for key in list(node):
            node[key] = _unshared(node[key], seen)
    elif isinstance(node, CommentedSeq):
        for number, item in enumerate(node):
            node[number] = _unshared(item, seen)
    return node
