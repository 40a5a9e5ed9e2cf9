"""A plan as people and their tools read it: text per object, plain JSON, and SARIF 2.1.0."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from drakkar.migration.converting.plan import ObjectPlan, Plan
from drakkar.migration.converting.work import VERDICTS, Note

__all__ = ["as_json", "as_sarif", "as_text"]

_LEVELS: Final = {"refused": "error", "lost": "warning", "manual": "warning", "changed": "note", "kept": "none"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SHOWN: Final = {"lost": "lost meaning", "manual": "manual step"}


def as_text(plan: Plan, *, everything: bool = False) -> str:
    """One block per object that is concerned (all with `everything`), new objects, advice, and a line that counts."""
    lines: list[str] = []
    for each in plan.objects:
        if not each.notes and not each.changed and not everything:
            continue
        lines.append(f"{each.document.file}: {_name(each)}: {_SHOWN.get(each.verdict, each.verdict)}")
        for note in each.notes:
            line = each.document.place(note.steps)[0]
            lines.append(f"  {_SHOWN.get(note.verdict, note.verdict)}: {note.message}")
            lines.append(f"    {note.code} at line {line}, {note.path}")
        lines += [f"  new: {_new(template)}" for template in each.generated]
    lines += [f"new: {_new(obj)}" for obj in plan.classes]
    lines += [f"note: {advice}" for advice in plan.advice]
    counted = Counter(each.verdict for each in plan.objects)
    shown = ", ".join(f"{counted[name]} {_SHOWN.get(name, name)}" for name in reversed(VERDICTS) if counted[name])
    new = len(plan.classes) + sum(len(each.generated) for each in plan.objects)
    total = len(plan.objects)
    lines.append(f"{total} object{'' if total == 1 else 's'}: {shown or 'nothing'}; {new} new")
    return "\n".join(lines)


def _name(each: ObjectPlan) -> str:
    namespace = each.document.namespace
    return each.document.reference + (f" in {namespace}" if namespace else "")


def _new(obj: dict[str, Any]) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{obj['kind']} {obj['metadata']['name']}" + (f" in {namespace}" if namespace else "")


def as_json(plan: Plan) -> dict[str, Any]:
    """Everything of a plan as plain values."""
    return {
        "to": plan.settings.to,
        "kubernetes": plan.settings.kubernetes,
        "objects": [_object(each) for each in plan.objects],
        "classes": list(plan.classes),
        "advice": list(plan.advice),
        "summary": {name: sum(each.verdict == name for each in plan.objects) for name in VERDICTS},
    }


def _object(each: ObjectPlan) -> dict[str, Any]:
    return {
        "file": each.document.file,
        "object": each.document.reference,
        "namespace": each.document.namespace,
        "verdict": each.verdict,
        "changed": each.changed,
        "notes": [_note(each, note) for note in each.notes],
        "new": [_new(template) for template in each.generated],
    }


def _note(each: ObjectPlan, note: Note) -> dict[str, Any]:
    line, column = each.document.place(note.steps)
    return {
        "verdict": note.verdict, "code": note.code, "path": note.path, "line": line, "column": column,
        "message": note.message,
    }  # fmt: skip


def as_sarif(plan: Plan, version: str) -> dict[str, Any]:
    """One result per note that asks for attention, and for every change."""
    notes = [(each, note) for each in plan.objects for note in each.notes if note.verdict != "kept"]
    rules = sorted({note.code for _, note in notes})
    driver = {"name": "drakkar migrate", "version": version, "rules": [{"id": name} for name in rules]}
    results = []
    for each, note in notes:
        line, column = each.document.place(note.steps)
        place = {
            "artifactLocation": {"uri": each.document.file},
            "region": {"startLine": line, "startColumn": column},
        }
        logical = {"fullyQualifiedName": f"{each.document.reference} {note.path}", "kind": "member"}
        results.append({
            "ruleId": note.code, "ruleIndex": rules.index(note.code), "level": _LEVELS[note.verdict],
            "message": {"text": f"{_SHOWN.get(note.verdict, note.verdict)}: {note.message}"},
            "locations": [{"physicalLocation": place, "logicalLocations": [logical]}],
        })  # fmt: skip
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
