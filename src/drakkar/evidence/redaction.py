"""Takes secrets out of what is about to leave a cluster: by where they stand, by how they look, and by what they are.

*Where*: environment values, ConfigMap data, the last-applied annotation, arguments after a word such as ``--token``,
fields whose name says what they are. *How*: bearer tokens, private keys, JWTs, keys of well-known services, passwords
in URLs. *What*: every value taken out at such a place is also taken out wherever else it turns up (a log that prints
its environment, an event that quotes an argument). What a diagnosis reads stays: names, references to Secrets, and the
few environment variables that say how a driver or runtime is set up.

A Secret object is never part of a bundle at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["MARK", "Redactor"]

Object = dict[str, Any]

MARK: Final = "REDACTED"
KEPT_VARIABLES: Final = frozenset(
    {
        "CDI_ROOT", "CONTAINERD_CONFIG", "CONTAINERD_SET_AS_DEFAULT", "CONTAINERD_SOCKET", "CUDA_VISIBLE_DEVICES",
        "DCGM_EXPORTER_COLLECTORS", "DCGM_EXPORTER_KUBERNETES", "DRIVER_ROOT", "FEATURE_GATES",
        "KUBERNETES_ENABLE_DRA", "MIG_STRATEGY", "NODE_NAME", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DRIVER_ROOT",
        "NVIDIA_VISIBLE_DEVICES", "RUNTIME", "RUNTIME_CONFIG_SOURCE", "WITH_WORKLOAD",
    }
)  # fmt: skip
_DROPPED_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
_OWN_ANNOTATIONS: Final = re.compile(r"(^|\.)(kubernetes\.io|nvidia\.com|k8s\.io)/")
_TELLING: Final = re.compile(
    r"(pass(word|wd|phrase)?|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|credentials?|authorization|"
    r"auth|cookie|dsn|connection[-_.]?string|webhook|(^|[-_.])key|(^|[-_.])pat|(^|[-_.])pw)$",
    re.I,
)
_HARMLESS_FIELDS: Final = frozenset(
    {"secretName", "secretKeyRef", "secretRef", "automountServiceAccountToken", "imagePullSecrets", "key",
     "serviceAccountToken", "topologyKey"}
)  # fmt: skip
_LEAST: Final = 6  # shorter values are words, and would be cut out of everything


class Redactor:
    """Takes secrets out of objects and texts; what it took out of objects it knows again in texts."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.count = 0

    def objects(self, objects: Iterable[Object]) -> list[Object]:
        """Copies without secrets; Secrets themselves are left out. Call it before :meth:`text`."""
        kept = [obj for obj in objects if obj.get("kind") != "Secret"]
        cleaned = [self._object(obj) for obj in kept]
        # A value may stand in an object that came before the one that says what it is.
        return [self._known_again(obj) for obj in cleaned] if self._known else cleaned

    def text(self, text: str) -> str:
        """The text without what looks like a secret, or is one that an object had."""
        for pattern, replacement in _PATTERNS:
            text, count = pattern.subn(replacement, text)
            self.count += count
        return self._without_known(text)

    def _object(self, obj: Object) -> Object:
        copy = dict(obj)
        if obj.get("kind") in ("ConfigMap",):
            for field in ("data", "binaryData"):
                if isinstance(obj.get(field), dict):
                    copy[field] = {name: self._config(name, value) for name, value in obj[field].items()}
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            copy["metadata"] = self._metadata(metadata)
        return {key: value if key in ("metadata", "data", "binaryData") else self._value(value, key)
                for key, value in copy.items()}  # fmt: skip

    def _config(self, name: str, value: Any) -> str:
        """Dashboards keep their queries; all else of a ConfigMap goes."""
        if isinstance(value, str) and name.endswith(".json") and '"expr"' in value:
            return self.text(value)
        return self._taken(value)

    def _metadata(self, metadata: Object) -> Object:
        copy = {key: value for key, value in metadata.items() if key != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            copy["annotations"] = {name: self._annotation(name, value) for name, value in annotations.items()}
        return copy

    def _annotation(self, name: str, value: Any) -> Any:
        if name in _DROPPED_ANNOTATIONS:
            self.count += 1
            return MARK
        if _TELLING.search(name):
            return self._taken(value)
        if not isinstance(value, str):
            return value
        return value if _OWN_ANNOTATIONS.search(name) and len(value) < 253 else self.text(value)

    def _value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            if "name" in value and isinstance(value.get("value"), str) and name == "env":
                return self._variable(value)
            return {key: self._field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return (
                self._arguments(value) if name in ("args", "command") else [self._value(item, name) for item in value]
            )
        return self.text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and name not in _HARMLESS_FIELDS and _TELLING.search(name):
            return self._taken(value)
        return self._value(value, name)

    def _variable(self, entry: Object) -> Object:
        name, value = str(entry["name"]), str(entry["value"])
        if name in KEPT_VARIABLES and self.text(value) == value:
            return entry
        return {**entry, "value": self._taken(value, remember=bool(_TELLING.search(name)) or _looks_random(value))}

    def _arguments(self, words: list[Any]) -> list[Any]:
        found: list[Any] = []
        telling = False
        for word in words:
            text = str(word)
            flag, equals, value = text.partition("=")
            if telling and not text.startswith("-"):
                found.append(self._taken(text))
                telling = False
                continue
            name = flag.lstrip("-")
            telling = flag.startswith("-") and not equals and " " not in flag and bool(_TELLING.search(name))
            if equals and " " not in flag and _TELLING.search(name):
                found.append(f"{flag}={self._taken(value)}")
            else:
                found.append(self.text(text) if isinstance(word, str) else word)
        return found

    def _taken(self, value: Any, *, remember: bool = True) -> str:
        self.count += 1
        text = str(value)
        if remember and len(text) >= _LEAST and text != MARK:
            # A file's lines are known again one by one: nobody prints all of them.
            lines = [line.strip() for line in text.splitlines() if len(line.strip()) >= 2 * _LEAST]
            self._known.update([text] if len(text) < 4096 else [], lines if "\n" in text else [])
            self._pattern = None
        return MARK

    def _known_again(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item if key in ("name", "namespace", "uid", "kind") else self._known_again(item)
                    for key, item in value.items()}  # fmt: skip
        if isinstance(value, list):
            return [self._known_again(item) for item in value]
        return self._without_known(value) if isinstance(value, str) else value

    def _without_known(self, text: str) -> str:
        if not self._known:
            return text
        if self._pattern is None:
            words = sorted((re.escape(word) for word in self._known), key=len, reverse=True)
            self._pattern = re.compile("|".join(words))
        text, count = self._pattern.subn(MARK, text)
        self.count += count
        return text


def _looks_random(value: str) -> bool:
    """Neither a path, a number, a list of words nor a name: letters and digits mixed, and no blanks."""
    return (
        len(value) >= 12
        and re.fullmatch(r"[\w+/=.~!@#$%^&*-]+", value) is not None
        and any(char.isdigit() for char in value)
        and any(char.isalpha() for char in value)
        and not value.startswith(("/", "http", "unix:", "tcp:"))
    )


_WORDS: Final = (
    r"[\w.-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential)s?"
)


def _marked(match: re.Match[str]) -> str:
    """The name stays, the value goes, its quotes stay: a file must still be what it was."""
    value = match[2].strip()
    quote = value[0] if value[:1] in ("'", '"') and value.count(value[0]) > 1 else ""
    return f"{match[1]}{quote}{MARK}{quote}"


_PATTERNS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = tuple(
    (re.compile(pattern, flags), replacement)
    for pattern, replacement, flags in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MARK, re.S),
        (r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?", MARK, 0),
        (r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}", rf"\1 {MARK}", 0),
        (r"(?i)\b(authorization\s*:\s*)\S[^\r\n\"']*", rf"\1{MARK}", 0),
        (r"(\w+://[^\s:/@\"']+:)[^\s/@\"']+@", rf"\1{MARK}@", 0),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MARK, 0),
        (r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|xox[abpr]-[\w-]{10,}|nvapi-[\w-]{20,}"
         r"|sk-[\w-]{20,}|AIza[\w-]{30,}|npm_\w{30,}|dckr_pat_[\w-]{20,}|pypi-[\w-]{40,})", MARK, 0),
        (r"\b((?:client|certificate-authority)-(?:key|certificate)?-?data:\s*)[\w+/=]+", rf"\1{MARK}", 0),
        (r"(?m)^(\s*(?:- )?(?:token|password|auth|identitytoken)\s*[:=]\s*)([\"']?[^\s\"'][^\n]*)$", _marked, 0),
        (r"(\"(?:auth|identitytoken|registrytoken|cookie)\"\s*:\s*)\"[^\"\n]+\"", rf'\1"{MARK}"', 0),
        (rf"(?i)([\"']?{_WORDS}[\"']?\s*[=:]\s*)(\"[^\"\n]+\"|'[^'\n]+'|[^\s\"',;&}}\]]+)", _marked, 0),
        (r"\b([A-Z][A-Z0-9_]*_(?:KEY|PAT|AUTH|DSN|COOKIE)=)\S+", rf"\1{MARK}", 0),
    )
)  # fmt: skip
