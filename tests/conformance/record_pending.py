"""Writes `pending.txt` anew from what fails now: `python -m tests.conformance.record_pending`.

For whoever has just made conversations pass. Look at the difference before you commit: the file may only get shorter.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance import test_http, test_kubectl
from tests.conformance.servers import ControlPlanes

HERE = Path(__file__).parent

HEAD = """\
# Steps of the recorded conversations and kubectl sessions that do not pass yet; the tests hold this file to it.
# Lines are `conversation / step`, or `kubectl MINOR: session / command`.
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        planes = ControlPlanes(Path(directory))
        with ThreadPoolExecutor(16) as pool:
            found = [set(one[0]) for one in pool.map(lambda path: test_http._replay(planes, path), test_http.FILES)]
        lines = sorted(set().union(*found))
        for minor in ("1.34", "1.37"):
            kubectl = test_kubectl.CACHE / minor / "kubectl"
            with ThreadPoolExecutor(6) as pool:
                runs = [pool.submit(test_kubectl._replay, planes, path, kubectl) for path in test_kubectl.FILES]
                failed = sorted(set().union(*(set(run.result()[0]) for run in runs)))
            lines += [f"kubectl {minor}: {line}" for line in failed]
        planes.close()
    (HERE / "pending.txt").write_text(HEAD + "".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} steps pending")


if __name__ == "__main__":
    main()
