"""What operators make of limits, and what they therefore have to be told when the limits are gone.

Ray tells its scheduler how many GPUs a group has from the limits (kuberay#3527), Kubeflow Trainer how many processes a
node runs (trainer#3540); both have a field that says so explicitly. KServe and Knative have modes that know no claims
(serving#15332).
"""

from __future__ import annotations

from typing import Final

from drakkar.kube.paths import value_at
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.converting.workloads import PodPlace
from drakkar.migration.documents import Steps

__all__ = ["after_pod", "before_object"]

_MODE: Final = "serving.kserve.io/deploymentMode"
_WITHOUT_KNATIVE: Final = ("RawDeployment", "Standard")


def before_object(work: Work, *, asks: bool) -> None:
    """Refuse what an operator would not pass on."""
    if work.settings.to != "claims" or not asks:
        return
    if work.document.kind == "InferenceService":
        mode = value_at(work.value, ("metadata", "annotations", _MODE))
        if mode not in _WITHOUT_KNATIVE:
            message = (
                f"without the annotation {_MODE}: RawDeployment (or Standard) KServe makes a Knative Service, which"
                " has no claims"
            )
            work.refuse("knative", ("metadata",), message)
        else:
            message = "KServe has to know resourceClaims of a pod (kserve#5828): check its version"
            work.note("manual", "operator-version", ("spec",), message)


def after_pod(work: Work, place: PodPlace, devices: int) -> None:
    """Tell the operator what it read from the limits before."""
    if work.settings.to != "claims" or not devices or work.refused:
        return
    if work.document.kind in ("RayCluster", "RayJob", "RayService") and place.steps[-1] == "template":
        group_steps = place.steps[:-1]
        group = value_at(work.value, group_steps)
        if isinstance(group, dict):
            _ray(work, group_steps, group, devices)


def _ray(work: Work, steps: Steps, group: Object, devices: int) -> None:
    parameters = group.get("rayStartParams")
    place = (*steps, "rayStartParams")
    if isinstance(parameters, dict) and "num-gpus" in parameters:
        work.note("kept", "ray-num-gpus", (*place, "num-gpus"), "num-gpus stays: Ray no longer sees it in the limits")
        return
    if not isinstance(parameters, dict):
        group["rayStartParams"] = parameters = {}
    parameters["num-gpus"] = str(devices)
    message = f"num-gpus: {devices} says what Ray read from the limits"
    work.note("changed", "ray-num-gpus", steps, message)
