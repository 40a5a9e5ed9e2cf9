"""Random small clusters with claims, in the format of the cases: made to hit rules against each other."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("a.example.com", "b.example.com")
SELECTORS = (
    "device.attributes['{d}'].n >= 1",
    "device.attributes['{d}'].?n.orValue(0) < 2",
    "device.driver == '{d}'",
    "device.attributes['{d}'].?g.orValue('') == 'x'",
    "device.attributes['{d}'].?ok.orValue(false)",
    "device.capacity['{d}'].?mem.orValue(quantity('0')).compareTo(quantity('4Gi')) >= 0",
    "!device.allowMultipleAllocations || device.attributes['{d}'].?n.orValue(0) < 2",
    "true",
)
MATCHABLE = ("a.example.com/g", "resource.kubernetes.io/root", "b.example.com/n", "a.example.com/v", "x.example.com/d")
TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "t0", "operator": "Exists"},
    {"key": "t1", "operator": "Equal", "value": "x"},
)
TAINTS = ("NoSchedule", "NoExecute", "None")


def random_case(seed: int) -> Json:
    """One case; equal seeds give equal cases."""
    r = random.Random(seed)
    quirks = {name for name in QUIRKS if r.random() < 0.3}
    pools = [_pool(r, number, quirks) for number in range(r.randint(1, 3))]
    slices = [item for pool in pools for item in pool]
    if r.random() < 0.3:
        r.shuffle(slices)
    classes: list[Json] = [{"metadata": {"name": "any"}, "spec": {}}]
    if "classes" in quirks:
        selectors = [_selector(r)] if r.random() < 0.7 else []
        config = [{"opaque": {"driver": DRIVERS[0], "parameters": {"class": 0}}}] if r.random() < 0.5 else []
        classes.append({"metadata": {"name": "cls0"}, "spec": {"selectors": selectors, "config": config}})
    claims = [_claim(r, number, quirks, [c["metadata"]["name"] for c in classes]) for number in range(r.randint(1, 3))]
    case: Json = {
        "name": f"fuzz/{seed}",
        "classes": classes,
        "slices": slices,
        "claims": claims,
        "node": {"metadata": {"name": "node-1", "uid": "n", "labels": {"zone": "a"}}},
    }
    if "alloc" in quirks:
        case["allocatedClaims"] = _allocated(r, slices, 0.95 if "full" in quirks else 0.3)
    gates = {name: True for name in ALPHA if "alpha" in quirks and r.random() < 0.4}
    if "derived" in quirks and r.random() < 0.8:
        gates["derivedAttributes"] = True
    gates.update({name: False for name in BETA if "gates" in quirks and r.random() < 0.2})
    if gates.get("consumableCapacity") is False:
        gates["fractionalCapacityRange"] = False
        gates.pop("deviceBindingAndStatus", None)  # with both off upstream runs a variant that orders at random
    if gates:
        case["features"] = gates
    return case


def on_several_nodes(case: Json, seed: int) -> Json:
    """The case with several nodes to be tried in turn; node-3 has nothing of its own."""
    r = random.Random(seed)
    names = r.sample(("node-1", "node-2", "node-3"), r.randint(1, 3))
    nodes = [{"metadata": {"name": name, "uid": name, "labels": {"zone": "a"}}} for name in names]
    return {**{key: value for key, value in case.items() if key != "node"}, "nodes": nodes}


ALPHA = ("listTypeAttributes", "optionalNodeOperations", "compatibilityGroups", "derivedAttributes")
DERIVED = (
    "device.attributes['{d}'].?n.orValue(0)",
    "device.attributes['{d}'].?g.orValue('x')",
    "device.driver",
    "device.attributes['{d}'].n > 1",
    "[device.driver, 'x']",
    "device.attributes['{d}'].g",
    "{'a': 1}",
)
"""What requests compute of a device: usual values, a list, what fails on some devices, what is of no allowed type."""
BETA = (
    "adminAccess",
    "prioritizedList",
    "partitionableDevices",
    "deviceTaints",
    "deviceBindingAndStatus",
    "consumableCapacity",
)
QUIRKS = (
    "admin",
    "all",
    "alloc",
    "binding",
    "classes",
    "config",
    "constraints",
    "counters",
    "first",
    "generations",
    "missing",
    "mixed",
    "perdevice",
    "plaincap",
    "selectors",
    "shares",
    "taints",
    "lists",
    "alpha",
    "gates",
    "groups",
    "operations",
    "derived",
    "full",
)


def _pool(r: random.Random, number: int, quirks: set[str]) -> list[Json]:
    driver = r.choice(DRIVERS)
    name = f"p{r.randint(0, 9)}{number}"
    generation = r.randint(1, 2)
    size = r.randint(1, 3)
    counters = "counters" in quirks and r.random() < 0.7
    slices = []
    for part in range(size):
        devices = [_device(r, f"{name}-d{part}{i}", quirks, driver, counters) for i in range(r.randint(0, 4))]
        spec: Json = {"driver": driver, "pool": {"name": name, "generation": generation}, "devices": devices}
        _place(r, spec, devices, quirks)
        slices.append({"metadata": {"name": f"s{r.randint(0, 99):02}-{name}-{part}"}, "spec": spec})
    if counters:
        sets = [
            {
                "name": f"cs{i}",
                "counters": {"c0": {"value": str(r.randint(1, 5))}, "c1": {"value": f"{r.randint(1, 6)}Gi"}},
            }
            for i in range(2)
        ]
        spec = {"driver": driver, "pool": {"name": name, "generation": generation}, "sharedCounters": sets}
        spec["nodeName"] = "node-1" if r.random() < 0.8 else "node-2"
        slices.append({"metadata": {"name": f"s{r.randint(0, 99):02}-{name}-c"}, "spec": spec})
    count = len(slices)
    if "missing" in quirks and r.random() < 0.4:
        count += r.choice((-1, 1))
    for item in slices:
        item["spec"]["pool"]["resourceSliceCount"] = max(count, 1)
    if "generations" in quirks and r.random() < 0.5:
        older = {"driver": driver, "pool": {"name": name, "generation": r.randint(0, 3), "resourceSliceCount": 1}}
        older["nodeName"] = r.choice(("node-1", "node-2"))
        older["devices"] = [_device(r, f"{name}-x{i}", set(), driver, False) for i in range(2)]
        slices.append({"metadata": {"name": f"s{r.randint(0, 99):02}-{name}-g"}, "spec": older})
    return slices


def _place(r: random.Random, spec: Json, devices: list[Json], quirks: set[str]) -> None:
    if "operations" in quirks and r.random() < 0.5:
        spec["skipNodeOperations"] = ["NodeUnprepareResources"]
    if "perdevice" in quirks and r.random() < 0.5:
        spec["perDeviceNodeSelection"] = True
        for device in devices:
            kind = r.random()
            if kind < 0.5:
                device["nodeName"] = r.choice(("node-1", "node-1", "node-2"))
            elif kind < 0.8:
                device["allNodes"] = True
            else:
                device["nodeSelector"] = _node_selector(r)
        return
    if "mixed" not in quirks:
        spec["nodeName"] = "node-1" if r.random() < 0.9 else "node-2"
        return
    kind = r.random()
    if kind < 0.5:
        spec["nodeName"] = r.choice(("node-1", "node-1", "node-2"))
    elif kind < 0.75:
        spec["allNodes"] = True
    else:
        spec["nodeSelector"] = _node_selector(r)


def _node_selector(r: random.Random) -> Json:
    values = r.choice((["a"], ["a", "b"], ["b", "a"], ["b"]))
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]}


def _device(r: random.Random, name: str, quirks: set[str], driver: str, counters: bool) -> Json:
    device: Json = {"name": name}
    attributes: Json = {}
    if r.random() < 0.8:
        attributes["n"] = {"int": r.randint(0, 3)}
    if r.random() < 0.8:
        if "lists" in quirks and r.random() < 0.5:
            attributes["g"] = {"strings": r.sample(("x", "y", "z"), r.randint(1, 2))}
        else:
            attributes["g"] = {"string": r.choice("xy")}
    if r.random() < 0.4:
        attributes["ok"] = {"bool": r.random() < 0.7}
    if r.random() < 0.4:
        attributes["v"] = {"version": r.choice(("1.0.0", "1.0.0+b", "2.0.0-rc.1"))}
    if r.random() < 0.5:
        attributes["resource.kubernetes.io/root"] = {"string": r.choice(("r0", "r1"))}
    if attributes:
        device["attributes"] = attributes
    if r.random() < 0.6 or "plaincap" in quirks:
        capacity: Json = {"value": r.choice(("8Gi", "4Gi", "10G", "6"))}
        if "shares" in quirks and r.random() < 0.6:
            device["allowMultipleAllocations"] = True
            policy = r.random()
            if policy < 0.3:
                span = r.choice(
                    ({"min": "1Gi", "step": "1Gi"}, {"min": "1Gi", "max": "6Gi"}, {"min": "500m", "step": "500m"})
                )
                capacity["requestPolicy"] = {"default": "1Gi", "validRange": span}
            elif policy < 0.5:
                capacity["requestPolicy"] = {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}
        device["capacity"] = {"mem": capacity}
    elif "shares" in quirks and r.random() < 0.2:
        device["allowMultipleAllocations"] = True
    if "taints" in quirks and r.random() < 0.4:
        device["taints"] = [
            {"key": f"t{r.randint(0, 1)}", "value": r.choice(("x", "y")), "effect": r.choice(TAINTS)}
            for _ in range(r.randint(1, 2))
        ]
    if "binding" in quirks and r.random() < 0.3:
        device["bindingConditions"] = ["ready"]
        if r.random() < 0.5:
            device["bindsToNode"] = True
    if counters and r.random() < 0.8:
        consumed: Json = {"c0": {"value": str(r.randint(0, 2))}}
        if r.random() < 0.5:
            consumed["c1"] = {"value": f"{r.randint(1, 3)}Gi"}
        entry: Json = {"counterSet": f"cs{r.randint(0, 1)}", "counters": consumed}
        if "groups" in quirks and r.random() < 0.5:
            entry["compatibilityGroups"] = r.sample(("g0", "g1", "g2"), r.randint(1, 2))
        device["consumesCounters"] = [entry]
    return device


def _claim(r: random.Random, number: int, quirks: set[str], classes: list[str]) -> Json:
    requests = []
    for place in range(r.randint(1, 3)):
        name = f"r{place}"
        if "first" in quirks and r.random() < 0.5:
            subs = [{"name": f"s{i}", **_exact(r, quirks, classes, sub=True)} for i in range(r.randint(1, 3))]
            requests.append({"name": name, "firstAvailable": subs})
        else:
            requests.append({"name": name, "exactly": _exact(r, quirks, classes)})
    devices: Json = {"requests": requests}
    if "constraints" in quirks:
        devices["constraints"] = [_constraint(r, requests) for _ in range(r.randint(1, 2))]
    if "config" in quirks:
        devices["config"] = [
            {"requests": r.sample([q["name"] for q in requests], r.randint(0, len(requests))),
             "opaque": {"driver": DRIVERS[0], "parameters": {"i": i}}}
            for i in range(r.randint(1, 2))
        ]  # fmt: skip
    return {
        "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {"devices": devices},
    }


def _exact(r: random.Random, quirks: set[str], classes: list[str], *, sub: bool = False) -> Json:
    exact: Json = {"deviceClassName": r.choice(classes)}
    if "all" in quirks and r.random() < 0.3:
        exact["allocationMode"] = "All"
    else:
        exact.update({"allocationMode": "ExactCount", "count": r.choice((1, 1, 1, 2, 2, 3))})
    if "selectors" in quirks and r.random() < 0.6:
        exact["selectors"] = [_selector(r) for _ in range(r.randint(1, 2))]
    if "admin" in quirks and not sub and r.random() < 0.4:
        exact["adminAccess"] = r.random() < 0.8
    if "derived" in quirks and r.random() < 0.5:
        expression = r.choice(DERIVED).replace("{d}", r.choice(DRIVERS))
        exact["derivedAttributes"] = [{"name": r.choice(MATCHABLE), "expression": expression}]
    if "taints" in quirks and r.random() < 0.5:
        exact["tolerations"] = [r.choice(TOLERATIONS)]
    if ("shares" in quirks or "plaincap" in quirks) and r.random() < 0.5:
        exact["capacity"] = {"requests": {"mem": r.choice(("1Gi", "3Gi", "1500Mi", "500m", "5G", "0", "2Gi"))}}
    return exact


def _selector(r: random.Random) -> Json:
    return {"cel": {"expression": r.choice(SELECTORS).replace("{d}", r.choice(DRIVERS))}}


def _constraint(r: random.Random, requests: list[Json]) -> Json:
    names = [q["name"] for q in requests]
    names += [f"{q['name']}/{s['name']}" for q in requests for s in q.get("firstAvailable", ())]
    constraint: Json = {r.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): r.choice(MATCHABLE)}
    if r.random() < 0.5:
        constraint["requests"] = r.sample(names, r.randint(1, min(2, len(names))))
    return constraint


def _allocated(r: random.Random, slices: list[Json], share: float) -> list[Json]:
    claims: list[Json] = []
    for item in slices:
        for device in item["spec"].get("devices", ()):
            if r.random() > share:
                continue
            spec = item["spec"]
            result: Json = {
                "request": "r",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if device.get("allowMultipleAllocations") and r.random() < 0.8:
                result["shareID"] = f"00000000-0000-0000-0000-{len(claims):012}"
                if "capacity" in device:
                    result["consumedCapacity"] = {"mem": r.choice(("1Gi", "2Gi", "0"))}
            if r.random() < 0.1:
                result["adminAccess"] = True
            metadata = {"name": f"held{len(claims)}", "namespace": "other", "uid": f"h{len(claims)}"}
            claims.append(
                {"metadata": metadata, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}}
            )
    return claims
