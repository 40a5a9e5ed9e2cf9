"""Complete the OpenAPI documents that `build.py` wrote: the values of enumerations and their meanings.

    python -m tools.schemas.enums          # after build.py

The published documents leave them out; an API server tells them (feature gate OpenAPIEnums). A real one of the same
version is started for it (`tools/realkube`), and its schemas take the place of the published ones.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from pathlib import Path

from tools import kubectl
from tools.realkube import build
from tools.realkube.cluster import RealCluster

OPENAPI = Path(__file__).parents[2] / "src/drakkar/cluster/machinery/data/openapi"
_BETAS = ("--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",)


def main() -> None:
    index = json.loads((OPENAPI / "index.json").read_bytes())
    parts = ("etcd", "kube-apiserver")
    with RealCluster(build.build(), only=parts, arguments={"kube-apiserver": _BETAS}) as cluster:
        for url in index:
            command = [kubectl.fetch(37), "get", "--raw", f"/openapi/v3/{url}"]
            told = subprocess.run(command, env=cluster.environment, capture_output=True, check=True).stdout
            path = OPENAPI / (url.replace("/", "__") + ".json.gz")
            document = json.loads(gzip.decompress(path.read_bytes()))
            document["components"]["schemas"] = json.loads(told)["components"]["schemas"]
            text = json.dumps(document, separators=(",", ":")).encode()
            path.write_bytes(gzip.compress(text, 9, mtime=0))
            index[url] = hashlib.sha512(text).hexdigest().upper()
    (OPENAPI / "index.json").write_text(json.dumps(index, indent=0) + "\n")


if __name__ == "__main__":
    main()
