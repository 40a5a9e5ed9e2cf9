"""What ``KIND/[NAMESPACE/]NAME`` on a command line means: a name, and the object of a snapshot that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of
from drakkar.kube import resources

__all__ = ["Target", "TargetError"]

Object = dict[str, Any]

_CLUSTER_WIDE: Final = frozenset({"Node"})
_RESOURCES: Final = {kind.kind: kind.group_resource for kind in resources.ALL}


class TargetError(DrakkarError):
    """A target that cannot be read or that the snapshot does not have."""


class Target(NamedTuple):
    """One object's name: its kind, its namespace ("" for what has none), its name, and the text that says so."""

    kind: str
    namespace: str
    name: str
    text: str

    @classmethod
    def read(
        cls, text: str, kinds: Mapping[str, str], namespace: str, *, problem: str = "is no target", expected: str
    ) -> Target:
        """A text as a target.

        Args:
            kinds: the words that may stand first, in lower case, and the kind that each means.
            namespace: the one that is meant where the text names none.
            problem, expected: what the error says of a text that is none.

        Raises `TargetError` for such a text.
        """
        word, _, rest = text.partition("/")
        kind = kinds.get(word.lower())
        if kind is None or not rest:
            raise TargetError(f"{text!r} {problem}", reason="InvalidTarget", subject=text, expected=expected)
        space, slash, name = rest.rpartition("/")
        return cls(kind, "" if kind in _CLUSTER_WIDE else space if slash else namespace, name, text)

    def of(self, snapshot: Snapshot) -> Object:
        """The object in a snapshot. Raises `TargetError`, which says what is there instead, or why it is not known."""
        found = snapshot.get(self.kind, self.name, self.namespace)
        if found is not None:
            return found
        if problem := snapshot.why_unread(_RESOURCES.get(self.kind, self.kind)):
            raise TargetError(f"cannot read {self.kind} {self.name}: {problem}", reason="Unread", subject=self.text)
        known = sorted(name_of(obj) for obj in snapshot.all(self.kind, self.namespace or None))
        elsewhere = sorted(namespace_of(obj) for obj in snapshot.all(self.kind) if name_of(obj) == self.name)
        place = f" in namespace {self.namespace}" if self.namespace else ""
        word = self.text.partition("/")[0]
        raise TargetError(
            f"there is no {self.kind} {self.name}{place}",
            reason="NotFound",
            subject=self.text,
            expected=f"one of {', '.join(known[:10])}" if known else "",
            next_step=f"try {word}/{elsewhere[0]}/{self.name}" if elsewhere else "",
        )
