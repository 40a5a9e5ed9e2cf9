"""Build the data files of `drakkar.cluster.machinery` from what the Kubernetes project publishes.

Two sources are joined: `reflection/` prints what only Go knows (JSON names, pointers, omitempty, protobuf numbers,
merge keys), and the OpenAPI v3 documents of the `k8s.io/kubernetes` module say how lists and maps merge under server-
side apply, and which defaults map keys have. The result is one small compressed file per Go package, loaded when
first used.

    go mod download -json k8s.io/kubernetes@v1.37.2        # prints "Dir"
    cd reflection && go run . > /tmp/types.json && cd ..
    python build.py /tmp/types.json DIR ../../src/drakkar/cluster/machinery/data
    cd ../.. && python -m tools.schemas.enums              # the values of enumerations, from a running API server
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

KUBERNETES = "v1.37.2"
SERVED = {
    "v1", "admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1", "apps/v1", "authentication.k8s.io/v1",
    "authorization.k8s.io/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates.k8s.io/v1",
    "coordination.k8s.io/v1", "discovery.k8s.io/v1", "events.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1",
    "policy/v1", "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2", "scheduling.k8s.io/v1", "storage.k8s.io/v1",
}  # fmt: skip
SCALARS = {
    "string": "s", "bool": "b", "int32": "i4", "int64": "i8", "int": "i8", "uint32": "u4", "uint64": "u8",
    "uint8": "u1",
    "uint16": "u2", "int16": "i2", "int8": "i1", "float32": "f4", "float64": "f8", "bytes": "B", "time": "T",
    "microtime": "M", "duration": "D", "fields": "F", "quantity": "Q", "intorstring": "X", "raw": "R", "json": "J",
}  # fmt: skip
PACKAGES = [
    (re.compile(r"^k8s\.io/api/(\w+)/(\w+)$"), r"\1.\2"),
    (re.compile(r"^k8s\.io/apimachinery/pkg/apis/meta/(\w+)$"), r"meta.\1"),
    (re.compile(r"^k8s\.io/apiextensions-apiserver/pkg/apis/apiextensions/(\w+)$"), r"apiextensions.\1"),
    (re.compile(r"^k8s\.io/apimachinery/pkg/(?:\w+/)*(\w+)$"), r"pkg.\1"),
]


def short(qualified: str) -> str:
    """`k8s.io/api/core/v1.Pod` → `core.v1.Pod`."""
    package, _, name = qualified.rpartition(".")
    for pattern, replacement in PACKAGES:
        if pattern.match(package):
            return f"{pattern.sub(replacement, package)}.{name}"
    raise SystemExit(f"no short name for {qualified}")


def expression(text: str) -> str:
    """A type of the reflection in the short form that `machinery.schemas` reads."""
    if text.startswith(("[]", "{")):
        outer, _, inner = text.partition("]" if text[0] == "[" else "}")
        return text[: len(outer) + 1] + expression(inner)
    if text.startswith("string:"):
        return "s:" + text.removeprefix("string:")
    return SCALARS.get(text) or "@" + short(text)


def openapi_schemas(directory: Path) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for path in sorted((directory / "api/openapi-spec/v3").glob("*_openapi.json")):
        schemas.update(json.loads(path.read_bytes()).get("components", {}).get("schemas", {}))
    return schemas


def merge_rule(prop: dict[str, Any]) -> dict[str, Any]:
    """How server-side apply treats the field, and the default that a list key may have."""
    rule: dict[str, Any] = {}
    if list_type := prop.get("x-kubernetes-list-type"):
        rule["l"] = list_type[0]
        if list_type == "map":
            rule["k"] = prop["x-kubernetes-list-map-keys"]
    if prop.get("x-kubernetes-map-type") == "atomic":
        rule["l"] = "a"
    if isinstance(prop.get("default"), str | int | bool) and prop["default"] not in ("", 0, False):
        rule["d"] = prop["default"]
    return rule


def reachable(kinds: dict[str, dict[str, str]], structs: dict[str, Any]) -> set[str]:
    seen: set[str] = set()
    queue = [name for names in kinds.values() for name in names.values()]
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        for field in structs[name]["fields"] or ():
            target = re.sub(r"^(\[\]|\{[^}]*\})*", "", field["type"])
            if target in structs:
                queue.append(target)
    return seen


def struct(entry: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas.get(entry.get("model", ""), {})
    properties = schema.get("properties", {})
    fields = []
    for field in entry["fields"] or ():
        flags = field.get("omit", "") + ("p" if field.get("pointer") else "") + ("i" if field.get("inline") else "")
        number = [*field.get("protobuf", "").split(","), "", ""][1]
        extra = {} if field.get("inline") else merge_rule(properties.get(field["name"], {}))
        if field.get("strategy"):
            extra["s"] = field["strategy"]
        if field.get("mergeKey"):
            extra["m"] = field["mergeKey"]
        row: list[Any] = [field["name"], expression(field["type"]), flags, int(number) if number.isdigit() else 0]
        fields.append([*row, extra] if extra else row)
    result: dict[str, Any] = {"f": fields}
    if schema.get("x-kubernetes-map-type") == "atomic":
        result["a"] = 1
    return result


def write_types(types: dict[str, Any], schemas: dict[str, Any], target: Path) -> None:
    kinds = {version: names for version, names in types["kinds"].items() if version in SERVED}
    structs = types["structs"]
    packages: dict[str, dict[str, Any]] = {}
    for name in sorted(reachable(kinds, structs)):
        package, _, bare = short(name).rpartition(".")
        packages.setdefault(package, {})[bare] = struct(structs[name], schemas)
    folder = target / "types"
    folder.mkdir(parents=True, exist_ok=True)
    for package, content in packages.items():
        text = json.dumps(content, separators=(",", ":")).encode()
        (folder / f"{package}.json.z").write_bytes(zlib.compress(text, 9))
    index = {
        version: {kind: short(name) for kind, name in sorted(names.items())} for version, names in sorted(kinds.items())
    }
    (folder / "kinds.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")


def write_openapi(directory: Path, target: Path) -> None:
    folder = target / "openapi"
    folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for path in sorted((directory / "api/openapi-spec/v3").glob("*_openapi.json")):
        url = path.name.removesuffix("_openapi.json").replace("__", "/")
        version = url.removeprefix("apis/") if url.startswith("apis/") else url.removeprefix("api/")
        if version not in SERVED:
            continue
        text = json.dumps(json.loads(path.read_bytes()), separators=(",", ":")).encode()
        (folder / (url.replace("/", "__") + ".json.gz")).write_bytes(gzip.compress(text, 9, mtime=0))
        index[url] = hashlib.sha512(text).hexdigest().upper()
    (folder / "index.json").write_text(json.dumps(index, indent=0) + "\n")


def main() -> None:
    reflection, directory, target = (Path(argument) for argument in sys.argv[1:4])
    write_types(json.loads(reflection.read_bytes()), openapi_schemas(directory), target)
    write_openapi(directory, target)
    (target / "VERSION").write_text(KUBERNETES + "\n")


if __name__ == "__main__":
    main()
