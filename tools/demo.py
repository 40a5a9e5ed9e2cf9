"""`make demo`: from nothing to a pod that sees exactly its GPU, with the evidence, in one go."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tools import examples
from tools import kubectl as kubectls

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("01-own-gpu", "04-memory-selector")


def main() -> None:
    kubectl = str(kubectls.on_path() or kubectls.fetch(max(kubectls.SUPPORTED)))
    begun = time.monotonic()
    title("An embedded cluster with a simulated DGX H100")
    with examples.cluster(["dgx-h100"], runtime="auto", name="demo") as environment:

        def show(*command: str) -> None:
            print(f"\n$ {' '.join(command)}", flush=True)
            program = {"kubectl": kubectl, "drakkar": examples.DRAKKAR}[command[0]]
            subprocess.run([program, *command[1:]], env=environment, cwd=ROOT / "examples/01-own-gpu", check=False)

        print(f"ready after {time.monotonic() - begun:.2f} s")
        show("drakkar", "status", "--name", "demo")
        show("kubectl", "get", "nodes,resourceslices")
        title("Two pods, each its own GPU by one template")
        show("kubectl", "apply", "-f", "pods.yaml")
        show("kubectl", "wait", "--for=condition=Ready", "pod/pod1", "pod/pod2", "--timeout=60s")
        show("kubectl", "get", "pods,resourceclaims", "-o", "wide")
        show("kubectl", "logs", "pod1")
        show("kubectl", "logs", "pod2")
        title("The four boundaries of pod1, with their evidence")
        show("drakkar", "explain", "pod/pod1")
    title("Two of the examples, checked")
    for expectation in [file for name in CHECKED for file in examples.expectations(ROOT / "examples" / name)]:
        started = time.monotonic()
        examples.run(expectation, kubectl=kubectl, runtime="auto")
        print(f"ok  {expectation.relative_to(ROOT)}  {time.monotonic() - started:.1f} s", flush=True)
    print(f"\nThe chain holds: inventory, allocation, preparation, injection. {time.monotonic() - begun:.0f} s in all.")


def title(text: str) -> None:
    print(f"\n── {text} {'─' * max(0, 90 - len(text))}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except examples.Failed as failure:
        sys.exit(f"demo: {failure}")
