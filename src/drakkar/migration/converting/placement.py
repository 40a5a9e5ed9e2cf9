"""What a pod says about nodes by GPU labels: moved into its claims where devices say the same.

`nodeSelector` and the requirements of a term must all hold, so each can move alone. Terms of an affinity are
alternatives: they move together, when all of them speak of devices only, or stay together.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.migration.converting.labels import expression, is_gpu_label, labels_of, product_of
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.documents import Steps

__all__ = ["device_conditions", "drop_empty", "single_profile"]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PRODUCT: Final = "nvidia.com/gpu.product"


def single_profile(spec: Object) -> str:
    """The MIG profile that the pod's node selector names (strategy single), "" if it names none."""
    selector = spec.get("nodeSelector")
    value = selector.get(_PRODUCT) if isinstance(selector, dict) else None
    if not isinstance(value, str):
        for term in _terms(spec):
            for entry in term.get("matchExpressions") or ():
                if isinstance(entry, dict) and entry.get("key") == _PRODUCT and len(entry.get("values") or ()) == 1:
                    value = str(entry["values"][0])
    return product_of(value)[1] if isinstance(value, str) else ""


def device_conditions(work: Work, steps: Steps, spec: Object, *, mig: bool) -> list[str]:
    """Conditions on devices instead of labels on nodes; what moves is taken out of the spec."""
    if work.document.kind == "DaemonSet":
        _daemons_stay(work, steps, spec)
        return []
    found = _from_selector(work, steps, spec, mig=mig)
    found += _from_affinity(work, steps, spec, mig=mig)
    _preferences(work, steps, spec)
    return list(dict.fromkeys(found))


def _daemons_stay(work: Work, steps: Steps, spec: Object) -> None:
    """A DaemonSet makes a pod for every node that its labels admit, whatever its claims can have there."""
    selector = spec.get("nodeSelector")
    keys = [key for key in selector if is_gpu_label(key)] if isinstance(selector, dict) else []
    for key in dict.fromkeys([*keys, *(key for term in _terms(spec) for key in labels_of(term))]):
        message = (
            f"{key} stays: it says on which nodes the DaemonSet has pods; GPU feature discovery has to keep running"
        )
        work.note("kept", "label-stays", (*steps, "nodeSelector" if key in keys else "affinity"), message)


def _condition(work: Work, key: str, operator: str, values: list[str], *, mig: bool) -> str | None:
    if key == _PRODUCT and mig and operator == "In" and all("-MIG-" in value for value in values):
        products = list(dict.fromkeys(product_of(value)[0] for value in values))
        return expression(key, operator, products, work.recorded, mig=mig)
    return expression(key, operator, values, work.recorded, mig=mig)


def _from_selector(work: Work, steps: Steps, spec: Object, *, mig: bool) -> list[str]:
    selector = spec.get("nodeSelector")
    found: list[str] = []
    if not isinstance(selector, dict):
        return found
    for key in [key for key in selector if is_gpu_label(key)]:
        place = (*steps, "nodeSelector", key)
        condition = _condition(work, key, "In", [str(selector[key])], mig=mig)
        if condition is None:
            _stays(work, place, key)
            continue
        del selector[key]
        if condition:
            found.append(condition)
            work.note("changed", "label-to-selector", place, f"{key} becomes the selector {condition}")
        else:
            work.note("changed", "label-implied", place, f"{key} goes: a node without such devices serves no claim")
    drop_empty(spec, "nodeSelector")
    return found


def _from_affinity(work: Work, steps: Steps, spec: Object, *, mig: bool) -> list[str]:
    terms = _terms(spec)
    place = (*steps, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    if not any(labels_of(term) for term in terms):
        return []
    moved = [_term_conditions(work, term, mig=mig) for term in terms]
    if len(terms) == 1:
        conditions, left = moved[0]
        for key in labels_of({"matchExpressions": left}):
            _stays(work, (*place, 0, "matchExpressions"), key)
        _set_expressions(terms[0], left)
        if not left and not terms[0].get("matchFields"):
            _drop_required(spec)
        for condition in conditions:
            work.note("changed", "label-to-selector", (*place, 0), f"the requirement becomes the selector {condition}")
        return conditions
    if all(
        conditions and not left and not term.get("matchFields")
        for term, (conditions, left) in zip(terms, moved, strict=True)
    ):
        _drop_required(spec)
        texts = [
            conditions[0] if len(conditions) == 1 else " && ".join(f"({one})" for one in conditions)
            for conditions, _ in moved
        ]
        whole = " || ".join(f"({text})" for text in texts)
        work.note("changed", "label-to-selector", place, f"the alternatives become the selector {whole}")
        return [whole]
    _stays(work, place, ", ".join(dict.fromkeys(key for term in terms for key in labels_of(term))))
    return []


def _term_conditions(work: Work, term: Object, *, mig: bool) -> tuple[list[str], list[Any]]:
    """What moves of a term, and the expressions that stay."""
    found: list[str] = []
    left: list[Any] = []
    for entry in term.get("matchExpressions") or ():
        key = str(entry.get("key")) if isinstance(entry, dict) else ""
        values = [str(value) for value in entry.get("values") or ()] if key else []
        condition = _condition(work, key, str(entry.get("operator")), values, mig=mig) if is_gpu_label(key) else None
        if condition is None:
            left.append(entry)
        elif condition:
            found.append(condition)
    return found, left


def _set_expressions(term: Object, left: list[Any]) -> None:
    if left:
        term["matchExpressions"] = left
    else:
        term.pop("matchExpressions", None)


def _preferences(work: Work, steps: Steps, spec: Object) -> None:
    affinity = spec.get("affinity")
    node = affinity.get("nodeAffinity") if isinstance(affinity, dict) else None
    for number, entry in enumerate(node.get(_PREFERRED) or ()) if isinstance(node, dict) else ():
        term = entry.get("preference") if isinstance(entry, dict) else None
        for key in labels_of(term) if isinstance(term, dict) else ():
            place = (*steps, "affinity", "nodeAffinity", _PREFERRED, number)
            work.note(
                "kept", "preference-stays", place, f"the preference for {key} stays: claims have none of this kind"
            )


def _stays(work: Work, place: Steps, key: str) -> None:
    message = (
        f"{key} stays a node label, since devices have no such attribute: GPU feature discovery has to keep running"
    )
    work.note("kept", "label-stays", place, message)


def _terms(spec: Object) -> list[Object]:
    affinity = spec.get("affinity")
    node = affinity.get("nodeAffinity") if isinstance(affinity, dict) else None
    required = node.get(_REQUIRED) if isinstance(node, dict) else None
    terms = required.get("nodeSelectorTerms") if isinstance(required, dict) else None
    return [term for term in terms if isinstance(term, dict)] if isinstance(terms, list) else []


def _drop_required(spec: Object) -> None:
    node = spec["affinity"]["nodeAffinity"]
    del node[_REQUIRED]
    drop_empty(spec["affinity"], "nodeAffinity")
    drop_empty(spec, "affinity")


def drop_empty(holder: Object, *names: str) -> None:
    """Remove fields that have nothing in them any more."""
    for name in names:
        if name in holder and not holder[name]:
            del holder[name]
