"""A real kubectl for tests: what a user types, and waiting for what it prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping

from drakkar.errors import DrakkarError

__all__ = ["Kubectl", "KubectlFailed", "find"]

_LIMIT = 60.0
_LOOK_AGAIN = 0.05


class KubectlFailed(AssertionError):
    """kubectl failed, or did not print in time what was expected; the message has the command and its output."""


def find(chosen: str = "") -> str:
    """The path of the chosen kubectl, or of the one on PATH. Raises `DrakkarError` if there is none."""
    path = shutil.which(chosen or "kubectl")
    if path is None:
        raise DrakkarError(
            f"there is no {chosen}" if chosen else "there is no kubectl on PATH",
            reason="NoKubectl",
            next_step="install kubectl 1.34 to 1.37, or name one with --drakkar-kubectl",
        )
    return path


class Kubectl:
    """Callable as kubectl is; `path` is the program, `environment` names its cluster."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.path, self.environment = path, dict(environment)

    def __call__(self, *words: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it once. With `check`, a status other than 0 raises `KubectlFailed`."""
        done = subprocess.run(
            [self.path, *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
        if check and done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(words)} failed with {done.returncode}:\n{done.stderr.strip()}")
        return done

    def apply(self, manifest: str) -> str:
        """``kubectl apply -f -`` with the manifest's text."""
        return self("apply", "-f", "-", stdin=manifest).stdout

    def until(self, *words: str, matches: str, seconds: float = 30.0) -> str:
        """Repeat a command until its output matches a regular expression (searched in it); return that output."""
        end = time.monotonic() + seconds
        while True:
            done = self(*words, check=False)
            if re.search(matches, done.stdout):
                return done.stdout
            if time.monotonic() >= end:
                printed = (done.stdout + done.stderr).strip() or "nothing"
                raise KubectlFailed(
                    f"kubectl {' '.join(words)} did not print {matches!r} within {seconds:g} s; last:\n{printed}"
                )
            time.sleep(_LOOK_AGAIN)
