"""Jobs: run pods until enough of them succeeded, and count every end exactly once.

A finished pod keeps a finalizer until it is counted (KEP-2307): its UID goes into `uncountedTerminatedPods`, then the
finalizer goes, then the counter moves. A crash between any two steps neither loses nor doubles a pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from drakkar.cluster.controllers import conditions, job_pods, pods
from drakkar.cluster.controllers.controller import Context, Controller, Object, key_of
from drakkar.cluster.controllers.expectations import Expectations
from drakkar.cluster.controllers.owners import controller_index
from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import parse_rfc3339, rfc3339
from drakkar.kube.resources import JOBS, PODS

_FIRST_BACKOFF, _LAST_BACKOFF = 10.0, 600.0
_REACHED = "Reached expected number of succeeded pods"
_LIMIT_REACHED = "Job has reached the specified backoff limit"
_BURST = 500


@dataclass(slots=True)
class _Tally:
    """A job's pods and counters while it is being reconciled."""

    job: Object
    status: dict[str, Any]
    pods: list[Object]
    active: list[Object] = field(default_factory=list)
    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    ruined: set[int] = field(default_factory=set)
    """Indexes that failed for good."""


class Jobs(Controller):
    """Creates pods, counts their ends, finishes jobs."""

    name = "job-controller"
    workers = 5

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._expected = Expectations(context.clock)
        self._failures: dict[str, dict[int | None, tuple[int, float]]] = {}
        self._jobs = self.watch(JOBS, self._on_job)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("controller", controller_index)

    def _on_job(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._expected.forget(key_of(old))
            self._failures.pop(old["metadata"]["uid"], None)
        self.enqueue(kind, old, new)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        key = self._expected.observe("Job", kind, old, new)
        if key is None:
            return
        self.queue.add(key)
        if new is not None and job_pods.is_tracked(new) and self._jobs.get(*key) is None:
            self.queue.add(("orphan", *key_of(new)))

    async def reconcile(self, key: Any) -> float | None:
        if key[0] == "orphan" and len(key) == 3:
            await self._let_go(self._pods.get(key[1], key[2]))
            return None
        job: Object | None = self._jobs.get(*key)
        if job is None:
            return None
        if finished(job):
            return await self._expire(job)
        if not self._expected.met(key) or job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
            return None
        owned = [
            pod
            for pod in self._pods.by_index("controller", job["metadata"]["uid"])
            if pod["metadata"]["namespace"] == key[0]
        ]
        return await self._sync(job, owned)

    async def _sync(self, job: Object, owned: list[Object]) -> float | None:
        tally = _tally(job, owned)
        suspended = bool(job["spec"].get("suspend"))
        if not suspended and "startTime" not in tally.status:
            tally.status["startTime"] = rfc3339(self.clock.now())
        await self._count_ends(tally)
        wait: float | None = None
        failure = self._failure(tally)
        if failure is not None:
            await self._end(tally, "FailureTarget", "Failed", *failure)
        elif rule := job_pods.success_rule(job, tally.completed):
            await self._end(tally, "SuccessCriteriaMet", "Complete", "SuccessPolicy", rule)
        elif _enough(tally):
            await self._end(tally, "SuccessCriteriaMet", "Complete", "CompletionsReached", _REACHED)
        elif suspended:
            await self._suspend(tally)
        else:
            self._resume(tally)
            if not pods.is_deleting(job):
                wait = await self._run(tally)
        await self._write(tally)
        # Once it is over, what its pods do brings the job back here, and not the deadline that has passed.
        deadline = self._deadline_in(tally) if failure is None else None
        return min((one for one in (wait, deadline) if one is not None), default=None)

    # Counting

    async def _count_ends(self, tally: _Tally) -> None:
        """Move finished pods from the cluster into the counters."""
        job, status = tally.job, tally.status
        ended: dict[str, list[Object]] = {"succeeded": [], "failed": []}
        for pod in tally.pods:
            if not job_pods.is_tracked(pod):
                continue
            if job_pods.has_succeeded(pod):
                ended["succeeded"].append(pod)
            elif job_pods.has_failed(pod, job):
                ended["failed"].append(pod)
        if job_pods.is_indexed(job):
            completions = job["spec"].get("completions") or 0
            indexes = {job_pods.index_of(pod) for pod in ended["succeeded"]}
            tally.completed |= {index for index in indexes if index is not None and index < completions}
            ruined = {job_pods.index_of(pod) for pod in ended["failed"] if job_pods.fails_index(pod, job)}
            tally.ruined |= {index for index in ruined if index is not None and index < completions}
        if not any(ended.values()):
            return
        status["uncountedTerminatedPods"] = {
            name: [pod["metadata"]["uid"] for pod in found] for name, found in ended.items() if found
        }
        await self._write(tally)
        for pod in [*ended["succeeded"], *ended["failed"]]:
            await self._let_go(pod)
        tally.succeeded += len(ended["succeeded"])
        policy = [job_pods.failure_action(pod, job)[0] for pod in ended["failed"]]
        counted = sum(action != "Ignore" for action in policy)
        tally.failed += counted
        status["uncountedTerminatedPods"] = {}
        if job_pods.limit_per_index(job) is None:
            self._remember(job["metadata"]["uid"], None, counted, succeeded=bool(ended["succeeded"]))
        else:
            for pod in ended["failed"]:
                self._remember(job["metadata"]["uid"], job_pods.index_of(pod), 1)

    def _remember(self, uid: str, index: int | None, failed: int, *, succeeded: bool = False) -> None:
        """Back-off grows with failures in a row and starts anew after a success."""
        if succeeded:
            self._failures.pop(uid, None)
        if failed:
            known = self._failures.setdefault(uid, {})
            known[index] = known.get(index, (0, 0.0))[0] + failed, self.clock.monotonic()

    async def _let_go(self, pod: Object | None) -> None:
        """Remove the tracking finalizer."""
        if pod is None or not job_pods.is_tracked(pod):
            return
        metadata = pod["metadata"]
        left = [one for one in metadata["finalizers"] if one != job_pods.FINALIZER]
        try:
            await self.client.patch(
                PODS,
                metadata["name"],
                {"metadata": {"uid": metadata["uid"], "finalizers": left or None}},
                namespace=metadata["namespace"],
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    # Deciding

    def _failure(self, tally: _Tally) -> tuple[str, str] | None:
        """(reason, message) if the job has failed."""
        spec = tally.job["spec"]
        earlier = conditions.find(tally.status.get("conditions") or (), "FailureTarget")
        if earlier is not None and earlier["status"] == "True":
            return earlier["reason"], earlier["message"]
        for pod in tally.pods:
            if pods.phase(pod) == "Failed":
                action, message = job_pods.failure_action(pod, tally.job)
                if action == "FailJob":
                    return "PodFailurePolicy", message
        limit = spec.get("backoffLimit")
        limit = 6 if limit is None else int(limit)
        if tally.failed > limit or _restarts(tally) > limit or (limit == 0 and _restarts(tally) > 0):
            return "BackoffLimitExceeded", _LIMIT_REACHED
        if tally.ruined:
            most = spec.get("maxFailedIndexes")
            if most is not None and len(tally.ruined) > int(most):
                return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
            if len(tally.ruined) + len(tally.completed) >= int(spec.get("completions") or 0):
                return "FailedIndexes", "Job has failed indexes"
        left = self._deadline_in(tally)
        if left is not None and left <= 0 and not spec.get("suspend"):
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _deadline_in(self, tally: _Tally) -> float | None:
        seconds, started = tally.job["spec"].get("activeDeadlineSeconds"), tally.status.get("startTime")
        if seconds is None or not started:
            return None
        return (parse_rfc3339(started) + timedelta(seconds=seconds) - self.clock.now()).total_seconds()

    async def _end(self, tally: _Tally, target: str, final: str, reason: str, message: str) -> None:
        """Stop what still runs; the job is over when nothing does."""
        now = self.clock.now()
        before = tally.status.get("conditions") or []
        if final == "Failed" and conditions.find(before, target) is None:
            # What still runs when a job fails counts as failed.
            tally.failed += sum(job_pods.is_tracked(pod) and not pods.is_finished(pod) for pod in tally.pods)
        listed = conditions.put(before, target, True, reason=reason, message=message, now=now, probed=True)
        for pod in tally.active:
            await self._delete(tally.job, pod)
        tally.active = []
        running = [pod for pod in tally.pods if not pods.is_finished(pod)]
        if not running:
            listed = conditions.put(listed, final, True, reason=reason, message=message, now=now, probed=True)
            if final == "Complete":
                tally.status["completionTime"] = rfc3339(now)
                self._announce(tally.job, "Normal", "Completed", "Job completed")
            else:
                self._announce(tally.job, "Warning", reason, message)
        tally.status["conditions"] = listed

    async def _suspend(self, tally: _Tally) -> None:
        for pod in tally.active:
            await self._delete(tally.job, pod)
        tally.active = []
        listed = tally.status.get("conditions") or []
        before = conditions.find(listed, "Suspended")
        if before is None or before["status"] != "True":
            self._announce(tally.job, "Normal", "Suspended", "Job suspended")
        tally.status["conditions"] = conditions.put(
            listed, "Suspended", True, reason="JobSuspended", message="Job suspended", now=self.clock.now(), probed=True
        )
        tally.status.pop("startTime", None)

    def _resume(self, tally: _Tally) -> None:
        listed = tally.status.get("conditions") or []
        before = conditions.find(listed, "Suspended")
        if before is not None and before["status"] == "True":
            self._announce(tally.job, "Normal", "Resumed", "Job resumed")
            tally.status["conditions"] = conditions.put(
                listed,
                "Suspended",
                False,
                reason="JobResumed",
                message="Job resumed",
                now=self.clock.now(),
                probed=True,
            )

    # Pods

    async def _run(self, tally: _Tally) -> float | None:
        """Create or delete pods so that the right number runs."""
        job = tally.job
        wanted = _wanted(tally)
        if job["spec"].get("podReplacementPolicy") == "Failed":
            going = sum(pods.is_deleting(pod) and not pods.is_finished(pod) for pod in tally.pods)
            wanted = max(0, wanted - going)
        if len(tally.active) > wanted:
            doomed = sorted(tally.active, key=lambda pod: pods.deletion_order(pod, {}))[: len(tally.active) - wanted]
            for pod in doomed:
                await self._delete(job, pod)
                tally.active.remove(pod)
        missing = wanted - len(tally.active)
        if missing <= 0:
            return None
        wait = self._backoff(job)
        if wait > 0:
            return wait
        indexes = _open_indexes(tally, missing) if job_pods.is_indexed(job) else [None] * min(missing, _BURST)
        waits = {index: self._backoff(job, index) for index in indexes if index is not None}
        indexes = [index for index in indexes if index is None or waits[index] <= 0]
        for index in indexes:
            try:
                made = await self.client.create(PODS, job_pods.make_pod(job, index, _last_failed(tally, index)))
            except ApiError as error:
                self._announce(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                raise
            self._expected.created(key_of(job), made["metadata"]["uid"])
            tally.active.append(made)
            self._announce(job, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return min((one for one in waits.values() if one > 0), default=None)

    def _backoff(self, job: Object, index: int | None = None) -> float:
        count, since = self._failures.get(job["metadata"]["uid"], {}).get(index, (0, 0.0))
        if not count:
            return 0.0
        delay: float = min(_LAST_BACKOFF, _FIRST_BACKOFF * 2 ** (count - 1))
        return since + delay - self.clock.monotonic()

    async def _delete(self, job: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        await self._let_go(pod)
        try:
            await self.client.delete(
                PODS, metadata["name"], metadata["namespace"], preconditions={"uid": metadata["uid"]}
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return
            raise
        self._expected.deleted(key_of(job), metadata["uid"])
        self._announce(job, "Normal", "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    # Status

    async def _write(self, tally: _Tally) -> None:
        status = tally.status
        counts = {"active": len(tally.active), "succeeded": _succeeded(tally), "failed": tally.failed}
        for name, value in counts.items():
            if value:
                status[name] = value
            else:
                status.pop(name, None)
        status["ready"] = sum(pods.is_ready(pod) for pod in tally.active)
        status["terminating"] = sum(pods.is_deleting(pod) and not pods.is_finished(pod) for pod in tally.pods)
        status.setdefault("uncountedTerminatedPods", {})
        if job_pods.is_indexed(tally.job) and tally.completed:
            status["completedIndexes"] = job_pods.format_indexes(tally.completed)
        if job_pods.limit_per_index(tally.job) is not None:
            status["failedIndexes"] = job_pods.format_indexes(tally.ruined)
        if status != (tally.job.get("status") or {}):
            written = await self.client.update(JOBS, {**tally.job, "status": dict(status)}, subresource="status")
            tally.job = written

    async def _expire(self, job: Object) -> float | None:
        """Delete a finished job whose time is up (ttlSecondsAfterFinished); seconds until then otherwise."""
        for pod in self._pods.by_index("controller", job["metadata"]["uid"]):
            await self._let_go(pod)
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or pods.is_deleting(job):
            return None
        ended = next(
            parse_rfc3339(one["lastTransitionTime"])
            for one in job["status"]["conditions"]
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        )
        left = (ended + timedelta(seconds=seconds) - self.clock.now()).total_seconds()
        if left > 0:
            return left
        namespace, name = key_of(job)
        await self.client.delete(
            JOBS, name, namespace, propagation_policy="Foreground", preconditions={"uid": job["metadata"]["uid"]}
        )
        return None

    def _announce(self, job: Object, type: str, reason: str, message: str) -> None:
        self._recorder.record({**job, "apiVersion": "batch/v1", "kind": "Job"}, type, reason, message)


def finished(job: Object) -> bool:
    """Whether the job is Complete or Failed."""
    return any(
        one["type"] in ("Complete", "Failed") and one["status"] == "True"
        for one in (job.get("status") or {}).get("conditions") or ()
    )


def _tally(job: Object, owned: list[Object]) -> _Tally:
    status = dict(job.get("status") or {})
    tally = _Tally(
        job, status, owned, succeeded=int(status.get("succeeded") or 0), failed=int(status.get("failed") or 0)
    )
    tally.active = [pod for pod in owned if pods.is_active(pod)]
    tally.completed = job_pods.parse_indexes(status.get("completedIndexes") or "")
    tally.ruined = job_pods.parse_indexes(status.get("failedIndexes") or "")
    # Left over from a crash: counted now if their finalizer is gone, else found again among the pods.
    tracked = {pod["metadata"]["uid"] for pod in owned if job_pods.is_tracked(pod)}
    uncounted = status.get("uncountedTerminatedPods") or {}
    tally.succeeded += sum(uid not in tracked for uid in uncounted.get("succeeded") or ())
    tally.failed += sum(uid not in tracked for uid in uncounted.get("failed") or ())
    if uncounted:
        status["uncountedTerminatedPods"] = {}
    return tally


def _succeeded(tally: _Tally) -> int:
    return len(tally.completed) if job_pods.is_indexed(tally.job) else tally.succeeded


def _enough(tally: _Tally) -> bool:
    completions = tally.job["spec"].get("completions")
    if completions is None:
        return tally.succeeded > 0 and not tally.active
    return _succeeded(tally) >= int(completions)


def _wanted(tally: _Tally) -> int:
    spec = tally.job["spec"]
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    if completions is None:
        # A work queue: after the first success nobody new is started.
        return len(tally.active) if tally.succeeded else parallelism
    return max(0, min(parallelism, int(completions) - _succeeded(tally) - len(tally.ruined)))


def _open_indexes(tally: _Tally, count: int) -> list[int | None]:
    busy = {job_pods.index_of(pod) for pod in tally.active} | tally.completed | tally.ruined
    completions = int(tally.job["spec"].get("completions") or 0)
    free: list[int | None] = [index for index in range(completions) if index not in busy]
    return free[: min(count, _BURST)]


def _last_failed(tally: _Tally, index: int | None) -> Object | None:
    """The pod of this index that failed last, by the number of failures before it."""
    failed = [one for one in tally.pods if job_pods.has_failed(one, tally.job) and job_pods.index_of(one) == index]
    return max(failed, key=job_pods.failures_of, default=None)


def _restarts(tally: _Tally) -> int:
    """Container restarts of pods that restart in place; they count against the back-off limit, too."""
    if (tally.job["spec"]["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return 0
    return sum(
        int(one.get("restartCount") or 0)
        for pod in tally.active
        for one in [
            *((pod.get("status") or {}).get("containerStatuses") or ()),
            *((pod.get("status") or {}).get("initContainerStatuses") or ()),
        ]
    )
