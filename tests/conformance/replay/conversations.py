"""Replaying a recorded conversation and comparing every answer."""

from __future__ import annotations

import http.client
import re
import threading
import time

from tests.conformance.replay.steps import clean_up, fetch, prepare_objects
from tests.conformance.replay.values import Bindings, resolve, shape, shortened, unify
from tests.conformance.replay.webhooks import Through, Webhooks


def compare(step, result, bindings):
    expected = step["response"]
    out = []
    if result["status"] != expected["status"]:
        out.append(
            f"status: expected {expected['status']}, got {result['status']}: {shortened(result.get('body'), 500)}"
        )
        return out
    if "contentType" in expected and result["contentType"].replace(" ", "") != expected["contentType"].replace(" ", ""):
        out.append(f"contentType: expected {expected['contentType']}, got {result['contentType']}")
    if ("warnings" in expected or "warnings" in result) and "warnings" not in step.get("ignore", []):
        out += unify(expected.get("warnings", []), result.get("warnings", []), bindings, step, "warnings")
    if "retryAfter" in expected and "retryAfter" not in result:
        out.append("retryAfter: missing")
    if "events" in expected:
        out += unify(
            expected["events"], shape_events(result.get("events", []), step), bindings, step, "events", ("events",)
        )
    elif "body" in expected:
        out += unify(expected["body"], shape(result.get("body"), step), bindings, step)
    elif "body" in result or result.get("events"):
        out.append(f"body: expected none, got {shortened(result.get('body') or result['events'])}")
    return out


def shape_events(events, step):
    """Bookmarks come and go with timing: kept are the one that ends the initial list and, if asked for, one more."""
    out = []
    for event in events:
        if event.get("type") == "BOOKMARK":
            marked = event.get("object", {}).get("metadata", {}).get("annotations", {})
            seen = any(e["type"] == "BOOKMARK" for e in out)
            if "k8s.io/initial-events-end" not in marked and (seen or not step.get("bookmarks")):
                continue
        wrapped = {"object": event.get("object")}
        out.append({"type": event.get("type"), "object": shape(wrapped, step)["object"]})
    return out


class Background:
    """A request that runs while later steps go on, for live watches."""

    def __init__(self, client, request):
        self.result, self.error = None, None

        def work():
            try:
                self.result = client.send(request)
            except Exception as error:  # reported by the step that joins
                self.error = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def join(self, limit=90):
        self.thread.join(limit)
        if self.error:
            raise self.error
        if self.result is None:
            raise TimeoutError("the background request did not end")
        return self.result


def patient(request):
    """The same watch for three times as long: what it sees does not depend on that, but a busy machine needs it."""

    def longer(found):
        return f"timeoutSeconds={3 * int(found[1])}"

    return {**request, "path": re.sub(r"\btimeoutSeconds=(\d+)", longer, request["path"])}


TROUBLE = (
    OSError,
    http.client.HTTPException,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
)  # a server may answer anything


def replay_conversation(client, conversation, report, keys=None):
    """Runs one conversation; returns how many steps passed and failed. `keys` are the PEM files for its webhooks:
    certificate and key of a server on 127.0.0.1, and who signed it."""
    if "webhooks" not in conversation:
        return _replay(client, conversation, report, None)
    with Webhooks(conversation["webhooks"], keys.certificate, keys.key, keys.authority) as webhooks:
        return _replay(Through(client, webhooks), conversation, report, webhooks)


def _replay(client, conversation, report, webhooks):
    bindings, results, running = Bindings(), {}, {}
    compared = [s for s in conversation["steps"] if "response" in s]
    passed = 0
    try:
        problem = prepare_objects(client, conversation, bindings)
        if problem:
            report(conversation["name"], "setup", [problem])
            return 0, len(compared)
        for step in conversation["steps"]:
            if step.get("pause"):
                time.sleep(step["pause"])
            try:
                if "join" in step:
                    result, problem = running.pop(step["join"]).join(), None
                else:
                    request = resolve(bindings.fill(step["request"]), results)
                    if step.get("background"):
                        running[step["name"]] = Background(client, patient(request))
                        time.sleep(0.3)
                        continue
                    if webhooks is not None:
                        webhooks.reviews()
                    result, problem = fetch(client, step, request)
                results[step["name"]] = result
                problems = [problem] if problem else compare(step, result, bindings)
                if "reviews" in step:
                    heard = [shape(one, {}) for one in webhooks.reviews()]
                    problems += unify(step["reviews"], heard, bindings, {}, "reviews")
            except TROUBLE as error:
                problems = [f"{type(error).__name__}: {error}"]
            report(conversation["name"], step["name"], problems)
            passed += not problems
    finally:
        clean_up(client, conversation, bindings)
    return passed, len(compared) - passed
