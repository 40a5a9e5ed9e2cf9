"""Node labels of GPU feature discovery as selectors of devices.

A label says something of a node, an attribute of a device. Where both say the same, the selector moves into the claim
and the pod no longer depends on labels; everything else (counts per node, strategies, machine types) stays where it is.
The label's product has dashes for blanks, so that the name is taken from recorded devices where it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from drakkar.migration.converting.devices import DOMAIN
from drakkar.migration.converting.work import Recorded

__all__ = ["expression", "is_gpu_label", "product_of"]

_PREFIX: Final = "nvidia.com/"
_FAMILIES: Final = {
    "kepler": "Kepler", "maxwell": "Maxwell", "pascal": "Pascal", "volta": "Volta", "turing": "Turing",
    "ampere": "Ampere", "ada-lovelace": "Ada Lovelace", "hopper": "Hopper", "blackwell": "Blackwell",
}  # fmt: skip
_VERSIONS: Final = {
    "gpu.compute": "cudaComputeCapability",
    "cuda.driver": "driverVersion",
    "cuda.driver-version": "driverVersion",
    "cuda.runtime": "cudaDriverVersion",
    "cuda.runtime-version": "cudaDriverVersion",
}
_PARTS: Final = {"major": "major", "minor": "minor", "rev": "patch", "revision": "patch"}
_IMPLIED: Final = frozenset({"gpu.present"})
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def is_gpu_label(key: str) -> bool:
    """Whether a label comes from GPU feature discovery or the operator."""
    return key.startswith(_PREFIX)


def product_of(label: str) -> tuple[str, str]:
    """The product in a label's value and the MIG profile of strategy single behind it ("" for a whole GPU)."""
    product, _, profile = label.partition("-MIG-")
    return product, profile


def expression(key: str, operator: str, values: Sequence[str], recorded: Recorded, *, mig: bool) -> str | None:
    """The condition on a device that says the same as one on a node.

    "" where a claim implies it, None where there is no such condition. `mig`: the devices are MIG devices.
    """
    name = key.removeprefix(_PREFIX)
    if name in _IMPLIED:
        implied = operator == "Exists" or (operator == "In" and list(values) == ["true"])
        return "" if implied else None
    term = _term(name, mig=mig)
    if term is None:
        return None
    if operator == "Exists":
        return ""
    subject, literal = term
    made = [literal(value, recorded) for value in values]
    if operator == "DoesNotExist" or not made or any(each is None for each in made):
        return None
    texts = [str(each) for each in made]
    if name == "gpu.product" and any("-" in text and " " not in text for text in texts):  # a product nobody knows
        subject, texts = f"{subject}.replace(' ', '-')", [f"'{value}'" for value in values]
    return _compared(name, subject, operator, texts)


def _compared(name: str, subject: str, operator: str, texts: list[str]) -> str | None:
    if operator in ("Gt", "Lt"):
        sign = ">" if operator == "Gt" else "<"
        if name == "gpu.memory":
            return f"{subject}.compareTo({texts[0]}) {sign} 0"
        return f"{subject} {sign} {texts[0]}" if not texts[0].startswith(("'", "semver")) else None
    if operator not in ("In", "NotIn"):
        return None
    if name == "gpu.memory" or name.endswith(".full"):
        compare = "{0}.compareTo({1}) == 0" if name == "gpu.memory" else "{0} == {1}"
        found = " || ".join(compare.format(subject, text) for text in texts)
        return found if operator == "In" else f"!({found})"
    if len(texts) == 1:
        return f"{subject} {'==' if operator == 'In' else '!='} {texts[0]}"
    found = f"{subject} in [{', '.join(texts)}]"
    return found if operator == "In" else f"!({found})"


_Literal = Callable[[str, Recorded], str | None]


def _term(name: str, *, mig: bool) -> tuple[str, _Literal] | None:
    """The expression for what a label tells, and how its values are written."""
    attributes = f"device.attributes['{DOMAIN}']"
    if name == "gpu.product":
        return f"{attributes}.productName", _product
    if name == "gpu.family":
        return f"{attributes}.architecture", _family
    if name == "gpu.memory":
        return None if mig else (f"device.capacity['{DOMAIN}'].memory", _memory)
    stem, _, part = name.rpartition(".")
    attribute = _VERSIONS.get(stem)
    if attribute is None:
        return None
    if part == "full":
        return f"{attributes}.{attribute}", _version
    return (f"{attributes}.{attribute}.{_PARTS[part]}()", _integer) if part in _PARTS else None


def _product(value: str, recorded: Recorded) -> str | None:
    if value.endswith("-SHARED") or "-MIG-" in value:
        return None
    known = {each for each in (*recorded.products, *_known_products()) if each.replace(" ", "-") == value}
    return f"'{known.pop()}'" if len(known) == 1 else f"'{value}'"


@cache
def _known_products() -> frozenset[str]:
    from drakkar.vendors.nvidia.models import gpu_model, gpu_model_names

    return frozenset(gpu_model(name).productName for name in gpu_model_names())


def _family(value: str, recorded: Recorded) -> str | None:
    del recorded
    return f"'{_FAMILIES[value]}'" if value in _FAMILIES else None


def _memory(value: str, recorded: Recorded) -> str | None:
    del recorded
    return f"quantity('{int(value)}Mi')" if _NUMBER.fullmatch(value) else None


def _integer(value: str, recorded: Recorded) -> str | None:
    del recorded
    return str(int(value)) if _NUMBER.fullmatch(value) else None


def _version(value: str, recorded: Recorded) -> str | None:
    del recorded
    parts = value.split(".")
    if not 1 < len(parts) <= 3 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    return f"semver('{'.'.join(str(int(part)) for part in (*parts, '0', '0')[:3])}')"


def labels_of(term: Mapping[str, Any]) -> list[str]:
    """The GPU labels that a node selector term speaks of."""
    entries = term.get("matchExpressions")
    return [
        str(entry.get("key"))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and is_gpu_label(str(entry.get("key")))
    ]
