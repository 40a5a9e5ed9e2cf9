"""Replay conversations with any Kubernetes API server.

    python -m tests.conformance.replay --server URL [--cacert F] [--cert F --key F | --token T] FILE_OR_FOLDER…
    python -m tests.conformance.replay --server URL … --kubectl PATH FILE_OR_FOLDER…

A fresh control plane of ours for each file is what `python -m tools.conformance` does.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import yaml

from drakkar.cluster import pki
from tests.conformance.replay.client import Client
from tests.conformance.replay.conversations import TROUBLE, replay_conversation
from tests.conformance.replay.sessions import replay_transcript
from tests.conformance.replay.values import Loader


def files_of(paths):
    """The conversations and transcripts in files and folders, in the order of their names."""
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.yaml"))
        else:
            yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--cacert")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--token")
    parser.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")
    parser.add_argument("--kubectl", help="run the kubectl transcripts with this binary")
    parser.add_argument("--only", help="regular expression on the names of conversations")
    parser.add_argument("--have", default="apiserver,controllers,scheduler", help="parts that run; others are left out")
    parser.add_argument("--skip-optional", action="store_true", help="leave out conversations marked optional")
    parser.add_argument("--quiet", action="store_true", help="print only failures and the last line")
    parser.add_argument("files", nargs="+", metavar="FILE_OR_FOLDER")
    args = parser.parse_args()
    client = Client(args)
    passed = failed = 0

    def report(conversation, step, problems):
        if problems:
            print(f"FAIL {conversation} / {step}")
            for problem in problems[:8]:
                print(f"     {problem}")
        elif not args.quiet:
            print(f"ok   {conversation} / {step}")
        sys.stdout.flush()

    folder = tempfile.TemporaryDirectory()
    keys = pki.prepare(Path(folder.name)).wait()
    for path in files_of(args.files):
        conversation = yaml.load(path.read_text(), Loader=Loader)
        transcript = "commands" in conversation
        if args.only and not re.search(args.only, conversation["name"]):
            continue
        if not set(conversation.get("needs", [])) <= set(args.have.split(",")):
            continue
        if (args.skip_optional and conversation.get("optional")) or (transcript and not args.kubectl):
            continue
        try:
            if transcript:
                good, bad = replay_transcript(client, args, conversation, report)
            else:
                good, bad = replay_conversation(client, conversation, report, keys)
        except (RuntimeError, *TROUBLE) as error:
            report(conversation["name"], "whole conversation", [f"{type(error).__name__}: {error}"])
            steps = conversation.get("steps") or conversation.get("commands")
            good, bad = 0, sum("response" in step or "expect" in step for step in steps)
        passed += good
        failed += bad
    folder.cleanup()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
