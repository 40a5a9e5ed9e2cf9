"""What surrounds the steps of a conversation: waiting for conditions, setting up, cleaning up."""

from __future__ import annotations

import json
import re
import time

from tests.conformance.replay.paths import as_text, find
from tests.conformance.replay.values import PLACEHOLDER, shortened


def holds(condition, result):
    if "status" in condition:
        return result["status"] == condition["status"]
    values = find(result.get("body"), condition["path"])
    if condition.get("absent"):
        return not values
    if condition.get("exists"):
        return bool(values)
    if "length" in condition:
        return any(len(v) == condition["length"] for v in values if isinstance(v, (list, dict)))
    if "count" in condition:
        return len(values) == condition["count"]
    if "atLeast" in condition:
        return any((len(v) if isinstance(v, (list, dict)) else v) >= condition["atLeast"] for v in values)
    if "equals" in condition:
        return any(v == condition["equals"] for v in values)
    if "allEqual" in condition:
        return bool(values) and all(v == condition["allEqual"] for v in values)
    if "matches" in condition:
        return any(re.search(condition["matches"], as_text(v)) for v in values)
    raise ValueError(f"unknown condition {condition}")


def fetch(client, step, request, sleep=0.15):
    """Run the step's request; with `wait`, repeat it until all conditions hold. Returns (result, problem)."""
    wait = step.get("wait")
    if not wait:
        return client.send(request), None
    deadline = time.monotonic() + wait.get("timeout", 30)
    while True:
        result = client.send(request)
        try:
            open_ = [c for c in wait["until"] if not holds(c, result)]
        except (TypeError, KeyError, AttributeError):
            open_ = wait["until"]
        if not open_:
            return result, None
        if time.monotonic() > deadline:
            return (
                result,
                f"after {wait.get('timeout', 30)} s still not: {json.dumps(open_)};"
                f" last answer {result['status']} {shortened(result.get('body'), 800)}",
            )
        time.sleep(sleep)


FORCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}


def prepare_objects(client, conversation, bindings):
    """Remove what an interrupted run left, then run the setup steps: nothing is compared, but each must succeed."""
    for path in conversation.get("cleanup", []):
        if not PLACEHOLDER.search(path) and not re.search(r"/namespaces/[^/]+/", path):
            _delete_until_gone(client, path, FORCE)
    for step in conversation.get("setup", []):
        request = bindings.fill(step["request"])
        deadline = time.monotonic() + 90
        while True:
            result, problem = fetch(client, step, request)
            if problem or result["status"] < 400:
                break
            body = result.get("body")
            message = body.get("message", "") if isinstance(body, dict) else ""
            terminating = (
                result["status"] == 409 and request["method"] == "POST" and request["path"] == "/api/v1/namespaces"
            )
            if time.monotonic() > deadline or not (
                terminating or "being terminated" in message or "being deleted" in message
            ):
                problem = f"{request['method']} {request['path']} → {result['status']} {shortened(body)}"
                break
            time.sleep(0.5)  # left over from an earlier run, still terminating
        if problem:
            return f"setup: {problem}"
        if step.get("pause"):
            time.sleep(step["pause"])
    return None


def clean_up(client, conversation, bindings):
    """Delete what the conversation made; wait for everything but namespaces to be gone."""
    paths = [bindings.fill(p) for p in conversation.get("cleanup", [])]
    for path in paths:
        if not PLACEHOLDER.search(path):
            _delete_until_gone(client, path, FORCE)
    for name in namespaces_of(conversation):
        client.send(
            {
                "method": "DELETE",
                "path": f"/api/v1/namespaces/{name}",
                "body": {"kind": "DeleteOptions", "apiVersion": "v1"},
            }
        )


def _delete_until_gone(client, path, body, limit=20):
    client.send({"method": "DELETE", "path": path, "body": body})
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        result = client.send({"method": "GET", "path": path})
        content = result.get("body")
        items = content.get("items") if isinstance(content, dict) else None
        if result["status"] >= 400 or items == []:
            return
        if time.monotonic() > deadline - limit / 2:  # something holds it: take the finalizers away
            base = path.split("?")[0]
            held = items if items is not None else [content]
            for item in (i for i in held if isinstance(i, dict) and isinstance(i.get("metadata"), dict)):
                target = f"{base}/{item['metadata'].get('name')}" if items is not None else base
                client.send(
                    {
                        "method": "PATCH",
                        "path": target,
                        "headers": {"Content-Type": "application/merge-patch+json"},
                        "body": {"metadata": {"finalizers": None}},
                    }
                )
                client.send({"method": "DELETE", "path": target, "body": body})
        time.sleep(0.2)


def namespaces_of(conversation):
    return [
        s["request"]["body"]["metadata"]["name"]
        for s in conversation.get("setup", [])
        if s["request"]["method"] == "POST" and s["request"]["path"].split("?")[0] == "/api/v1/namespaces"
    ]
