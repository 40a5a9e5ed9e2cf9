"""What is wrong with jobs and cron jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, invalid, not_supported, required, too_long
from drakkar.cluster.machinery.validation import job_failures, job_success, pods, values
from drakkar.cluster.machinery.validation.schedules import schedule_complaint
from drakkar.kube import names

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
_COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MODES: Final = ("NonIndexed", "Indexed")
_MANY: Final = 100_000
_MOST_FAILED_OF_MANY: Final = 10_000


def _new_job(obj: Json) -> Found:
    return _check_generated(obj) + _job(obj)


def _job(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found = _check_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        found.append(required("spec.selector"))
        return found
    found += values.check_label_selector(selector, "spec.selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not values.selector_matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        found.append(invalid("spec.template.metadata.labels", labels, detail))
    return found


def _check_generated(obj: Json) -> Found:
    """Without manualSelector, selector and labels must be those that the server made from UID and name."""
    spec, meta = obj.get("spec") or {}, obj.get("metadata") or {}
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    expected = {
        "controller-uid": uid, "job-name": name, "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }  # fmt: skip
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    found: Found = [] if uid else [required("metadata.uid")]
    for key, value in expected.items():
        place = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            found.append(required(place, f"must be '{value}'"))
        elif labels[key] != value:
            found.append(invalid(place, labels, f"must be '{value}'"))
    if not values.selector_matches(spec["selector"], expected):
        found.append(invalid("spec.selector", spec["selector"], "`selector` not auto-generated"))
    return found


def _check_spec(spec: Json, path: str) -> Found:
    found = [error for name in _COUNTS for error in values.check_non_negative(spec, name, path)]
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        found.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("managedBy") is not None:
        found += _check_manager(spec["managedBy"], f"{path}.managedBy")
    found += _check_mode(spec, path)
    if spec.get("podFailurePolicy") is not None:
        found += job_failures.check_failure_policy(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        found += job_success.check_success_policy(spec, f"{path}.successPolicy")
    replacement = spec.get("podReplacementPolicy")
    accepted = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in accepted:
        found.append(not_supported(f"{path}.podReplacementPolicy", replacement, accepted))
    found += pods.check_template(spec.get("template") or {}, f"{path}.template")
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or ""
    place = f"{path}.template.spec.restartPolicy"
    if policy in ("Always", ""):
        found.append(required(place, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        found.append(not_supported(place, policy, ("OnFailure", "Never")))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(invalid(place, policy, detail))
    return found


def _check_mode(spec: Json, path: str) -> Found:
    mode = spec.get("completionMode")
    found: Found = []
    if mode is not None and mode not in _MODES:
        found.append(not_supported(f"{path}.completionMode", mode, _MODES))
    if mode == "Indexed":
        if spec.get("completions") is None:
            found.append(required(f"{path}.completions", "when completion mode is Indexed"))
        if (spec.get("parallelism") or 0) > _MANY:
            detail = f"must be less than or equal to {_MANY} when completion mode is Indexed"
            found.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
        found += _check_failed_indexes(spec, path)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                found.append(invalid(f"{path}.{name}", spec[name], "requires indexed completion mode"))
    return found


def _check_failed_indexes(spec: Json, path: str) -> Found:
    completions, failed, parallelism = (spec.get(name) for name in ("completions", "maxFailedIndexes", "parallelism"))
    place, at_most = f"{path}.maxFailedIndexes", "must be less than or equal to"
    found: Found = []
    if completions is not None and failed is not None and failed > completions:
        found.append(invalid(place, failed, f"{at_most} completions"))
    if failed is not None and failed > _MANY:
        found.append(invalid(place, failed, f"{at_most} {_MANY}"))
    if (completions or 0) <= _MANY or spec.get("backoffLimitPerIndex") is None:
        return found
    why = f"when completions are above {_MANY} and used with backoff limit per index"
    if failed is None:
        found.append(required(place, f"must be specified when completions is above {_MANY}"))
    if (parallelism or 0) > _MOST_FAILED_OF_MANY:
        found.append(invalid(f"{path}.parallelism", parallelism, f"{at_most} {_MOST_FAILED_OF_MANY} {why}"))
    if (failed or 0) > _MOST_FAILED_OF_MANY:
        found.append(invalid(place, failed, f"{at_most} {_MOST_FAILED_OF_MANY} {why}"))
    return found


def _check_manager(name: str, path: str) -> Found:
    """Who looks after the job, as a path below a domain."""
    host, _, rest = name.partition("/")
    if not name:
        return [required(path)]
    if not host or not rest:
        wrong = invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return [wrong, *_check_length(name, path)]
    found = [invalid(path, host, text) for text in names.dns_subdomain(host)]
    if not _HTTP_PATH.fullmatch(rest):
        found.append(invalid(path, rest, names.regex_complaint("Invalid path", _HTTP_PATH.pattern)))
    return found + _check_length(name, path)


def _check_length(name: str, path: str) -> Found:
    return [too_long(path, 63)] if len(name.encode()) > 63 else []


_HTTP_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)


def _job_update(new: Json, old: Json) -> Found:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = _job(new)
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        found += metadata.check_immutable(spec.get("completions"), before.get("completions"), "spec.completions")
    found += metadata.check_immutable(spec.get("selector"), before.get("selector"), "spec.selector")
    found += _check_template_update(spec.get("template") or {}, before.get("template") or {}, old)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        found += metadata.check_immutable(spec.get(name), before.get(name), f"spec.{name}")
    return found


_DIRECTIVES: Final = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def _check_template_update(template: Json, former: Json, old: Json) -> Found:
    """Templates are immutable; those of suspended jobs may change where their pods run and what they ask for."""
    before, status = old.get("spec") or {}, old.get("status") or {}
    if not before.get("suspend"):
        return metadata.check_immutable(template, former, "spec.template")
    halted = not status.get("startTime") or any(
        condition.get("type") == "Suspended" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    if not halted or status.get("active"):
        return metadata.check_immutable(template, former, "spec.template")
    spec, allowed = template.get("spec") or {}, dict(former.get("spec") or {})
    for name in _DIRECTIVES:
        allowed[name] = spec.get(name)
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) == len(allowed.get(name) or ()):
            allowed[name] = [
                {**mine, "resources": theirs.get("resources")} if mine.get("name") == theirs.get("name") else mine
                for mine, theirs in zip(allowed.get(name) or (), spec.get(name) or (), strict=True)
            ]
    allowed = {name: value for name, value in allowed.items() if value is not None and value != []}
    return metadata.check_immutable(spec, allowed, "spec.template.spec")


def _cron_job(obj: Json) -> Found:
    found = _check_cron(obj.get("spec") or {})
    name = (obj.get("metadata") or {}).get("name") or ""
    if len(name) > 52:
        found.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    return found


def _check_cron(spec: Json) -> Found:
    schedule = spec.get("schedule") or ""
    found: Found = []
    if schedule:
        complaint = schedule_complaint(schedule)
        if complaint:
            found.append(invalid("spec.schedule", schedule, complaint))
        if "TZ" in schedule:
            detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            found.append(invalid("spec.schedule", schedule, detail))
    found += values.check_non_negative(spec, "startingDeadlineSeconds", "spec")
    found += _check_zone(spec.get("timeZone"))
    policy = spec.get("concurrencyPolicy")
    if policy not in ("Allow", "Forbid", "Replace"):
        found.append(not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace")))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    found += _check_spec(job, "spec.jobTemplate.spec")
    if job.get("selector") is not None:
        found.append(invalid("spec.jobTemplate.spec.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        found.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        found += values.check_non_negative(spec, name, "spec")
    return found if schedule else [*found, required("spec.schedule")]  # declared: told after what is checked by hand


def _check_zone(zone: str | None) -> Found:
    if zone is None:
        return []
    if not zone:
        return [invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return [invalid("spec.timeZone", zone, f"unknown time zone {zone}")]
    return []


CREATE: Final[dict[str, Callable[[Json], Found]]] = {"CronJob": _cron_job, "Job": _new_job}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("CronJob", ""): lambda new, _: _check_cron(new.get("spec") or {}),
    ("Job", ""): _job_update,
}
