"""CronJobs: jobs at certain times, with a policy for those that still run (`pkg/controller/cronjob`, version 2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.cron_schedules import Schedule, parse_schedule
from drakkar.cluster.controllers.jobs import finished
from drakkar.cluster.controllers.owners import controller_index, controller_of, owner_reference
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import parse_rfc3339, rfc3339
from drakkar.kube.resources import CRON_JOBS, JOBS

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_TOO_MANY = 100


class CronJobs(Controller):
    """Keys are cron jobs."""

    name = "cronjob-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._crons = self.watch(CRON_JOBS, self.enqueue)
        self._jobs = self.watch(JOBS, self._on_job)
        self._jobs.add_index("controller", controller_index)

    def _on_job(self, kind: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        owner = controller_of(job) if job else None
        if job is not None and owner is not None and owner["kind"] == "CronJob":
            self.queue.add((job["metadata"]["namespace"], owner["name"]))

    async def reconcile(self, key: Key) -> float | None:
        cron = self._crons.get(*key)
        if cron is None:
            return None
        owned = self._jobs.by_index("controller", cron["metadata"]["uid"])
        status = self._account(cron, owned)
        await self._clean_up(cron, owned)
        wait: float | None = None
        if not pods.is_deleting(cron) and not cron["spec"].get("suspend"):
            try:
                schedule = parse_schedule(cron["spec"]["schedule"], cron["spec"].get("timeZone") or "")
            except DrakkarError as error:
                self._announce(cron, "Warning", "UnparseableSchedule", error.message)
            else:
                wait = await self._run_due(cron, schedule, owned, status)
        if status != (cron.get("status") or {}):
            await self.client.update(CRON_JOBS, {**cron, "status": status}, subresource="status")
        return wait

    def _account(self, cron: Object, owned: list[Object]) -> dict[str, Any]:
        """The status with jobs that ended taken off the active list."""
        status = dict(cron.get("status") or {})
        running = {job["metadata"]["uid"]: job for job in owned if not finished(job)}
        active = []
        for one in status.get("active") or ():
            if one["uid"] in running:
                active.append(one)
                continue
            job = next((job for job in owned if job["metadata"]["uid"] == one["uid"]), None)
            if job is None:
                self._announce(cron, "Normal", "MissingJob", f"Active job went missing: {one['name']}")
                continue
            end = _ended(job)
            self._announce(cron, "Normal", "SawCompletedJob", f"Saw completed job: {one['name']}, condition: {end}")
            done = (job.get("status") or {}).get("completionTime")
            if end == "Complete" and done and done > (status.get("lastSuccessfulTime") or ""):
                status["lastSuccessfulTime"] = done
        listed = {one["uid"] for one in active}
        active += [_reference(job) for uid, job in running.items() if uid not in listed]
        if active:
            status["active"] = active
        else:
            status.pop("active", None)
        return status

    async def _run_due(
        self, cron: Object, schedule: Schedule, owned: list[Object], status: dict[str, Any]
    ) -> float | None:
        """Start what is due; seconds until the next time."""
        spec, now = cron["spec"], self.clock.now()
        due = self._latest_due(cron, schedule, status, now)
        if due is not None:
            deadline = spec.get("startingDeadlineSeconds")
            name = f"{cron['metadata']['name']}-{int(due.timestamp()) // 60}"
            known = any(job["metadata"]["name"] == name for job in owned)
            if deadline is not None and due + timedelta(seconds=deadline) < now:
                text = f"Missed scheduled time to start a job: {due.strftime('%a, %d %b %Y %H:%M:%S +0000')}"
                self._announce(cron, "Warning", "MissSchedule", text)
            elif not known and await self._may_start(cron, owned, status):
                await self._start(cron, name, due, status)
        following = schedule.next_after(now)
        return None if following is None else (following - now).total_seconds() + 0.1

    def _latest_due(self, cron: Object, schedule: Schedule, status: dict[str, Any], now: datetime) -> datetime | None:
        """The most recent time that has passed and was not served."""
        since = parse_rfc3339(status.get("lastScheduleTime") or cron["metadata"]["creationTimestamp"])
        deadline = cron["spec"].get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, now - timedelta(seconds=deadline))
        found, missed = None, 0
        moment = schedule.next_after(since)
        while moment is not None and moment <= now:
            found, missed = moment, missed + 1
            moment = schedule.next_after(moment)
            if missed == _TOO_MANY:
                text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                self._announce(cron, "Warning", "TooManyMissedTimes", text)
        return found

    async def _may_start(self, cron: Object, owned: list[Object], status: dict[str, Any]) -> bool:
        active = status.get("active") or []
        policy = cron["spec"].get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._announce(cron, "Normal", "JobAlreadyActive", text)
            return False
        if policy == "Replace":
            for one in active:
                await self._delete(cron, one["name"])
            status.pop("active", None)
        return True

    async def _start(self, cron: Object, name: str, due: datetime, status: dict[str, Any]) -> None:
        template = cron["spec"]["jobTemplate"]
        metadata = template.get("metadata") or {}
        job: Object = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": cron["metadata"]["namespace"],
                "labels": dict(metadata.get("labels") or {}),
                "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: rfc3339(due)},
                "ownerReferences": [owner_reference(cron, CRON_JOBS)],
            },
            "spec": template["spec"],
        }
        try:
            made = await self.client.create(JOBS, job)
        except ApiError as error:
            if not error.already_exists:
                self._announce(cron, "Warning", "FailedCreate", f"Error creating job: {error.message}")
                raise
            return
        self._announce(cron, "Normal", "SuccessfulCreate", f"Created job {name}")
        status["active"] = [*(status.get("active") or ()), _reference(made)]
        status["lastScheduleTime"] = rfc3339(due)

    async def _clean_up(self, cron: Object, owned: list[Object]) -> None:
        """Keep only so many finished jobs of each kind."""
        for end, field, default in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            limit = cron["spec"].get(field)
            limit = default if limit is None else int(limit)
            ended = [job for job in owned if _ended(job) == end and not pods.is_deleting(job)]
            ended.sort(key=lambda job: (job.get("status") or {}).get("startTime") or "")
            for job in ended[: max(0, len(ended) - limit)]:
                await self._delete(cron, job["metadata"]["name"])

    async def _delete(self, cron: Object, name: str) -> None:
        namespace = key_of(cron)[0]
        try:
            await self.client.delete(JOBS, name, namespace, propagation_policy="Background")
        except ApiError as error:
            if not error.not_found:
                raise
            return
        self._announce(cron, "Normal", "SuccessfulDelete", f"Deleted job {name}")

    def _announce(self, cron: Object, type: str, reason: str, message: str) -> None:
        self._recorder.record({**cron, "apiVersion": "batch/v1", "kind": "CronJob"}, type, reason, message)


def _ended(job: Object) -> str:
    """Complete, Failed or an empty text."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one["type"] in ("Complete", "Failed") and one["status"] == "True":
            found: str = one["type"]
            return found
    return ""


def _reference(job: Object) -> dict[str, str]:
    metadata = job["metadata"]
    return {
        "kind": "Job",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": metadata.get("resourceVersion") or "",
    }
