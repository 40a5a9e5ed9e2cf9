"""Replaying recorded kubectl sessions with a real kubectl."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from tests.conformance.replay.conversations import TROUBLE
from tests.conformance.replay.steps import clean_up, fetch, prepare_objects
from tests.conformance.replay.values import Bindings, resolve, shortened, unify_bag, unify_text


def kubectl_version(path):
    out = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    info = json.loads(out.stdout)["clientVersion"]
    return re.match(r"v(\d+\.\d+)", info["gitVersion"]).group(1)


def write_kubeconfig(args, folder):
    cluster = {"server": args.server}
    if args.cacert:
        cluster["certificate-authority"] = str(Path(args.cacert).resolve())
    else:
        cluster["insecure-skip-tls-verify"] = True
    user = {"token": args.token} if args.token else {}
    if args.cert:
        user = {"client-certificate": str(Path(args.cert).resolve()), "client-key": str(Path(args.key).resolve())}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = Path(folder) / "config"
    path.write_text(yaml.dump(config))
    return str(path)


def run_kubectl(args, kubeconfig, folder, command):
    for name, content in command.get("files", {}).items():
        (Path(folder) / name).write_text(content if isinstance(content, str) else yaml.dump(content, sort_keys=False))
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": folder,
        "KUBECONFIG": kubeconfig,
        "KUBECACHEDIR": str(Path(folder) / "cache"),
        "KUBECTL_EXTERNAL_DIFF": "diff -u -N",
        "LC_ALL": "C",
        **command.get("env", {}),
    }
    argv = [args.kubectl, *shlex.split(command["run"])[1:]]
    for key in [k for k in os.environ if k.lower() in ("no_proxy",)]:
        env[key] = os.environ[key]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env=env,
            cwd=folder,
            timeout=command.get("timeout", 60),
            input=command.get("stdin", ""),
        )
    except subprocess.TimeoutExpired as late:

        def text(b):
            return b.decode() if isinstance(b, bytes) else (b or "")

        return {"exit": -1, "stdout": text(late.stdout), "stderr": text(late.stderr)}
    return {"exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def text_lines(text, command):
    """Lines with runs of blanks made one, since widths follow the values; sorted if the command says so."""
    lines = [re.sub(r"[ \t]+", " ", line).rstrip() for line in text.splitlines()]
    lines = [line for line in lines if not re.match(r"[IWEF]\d{4} \d\d:\d\d:\d\d", line)]  # the client's own log
    lines = [line for line in lines if not any(re.search(p, line) for p in command.get("ignoreLines", []))]
    return sorted(lines) if command.get("unorderedLines") else lines


def expected_for(command, version):
    return command.get("expectFor", {}).get(version) or command["expect"]


def compare_kubectl(command, version, result, bindings):
    expected, out = expected_for(command, version), []
    if result["exit"] != expected["exit"]:
        out.append(f"exit: expected {expected['exit']}, got {result['exit']}; stderr {result['stderr']!r}")
    for stream in ("stdout", "stderr"):
        if stream in command.get("ignoreStreams", []):
            continue
        want, got = text_lines(expected.get(stream, ""), command), text_lines(result[stream], command)
        if command.get("contains"):
            for line in want:
                if not any(not unify_text(line, g, bindings.copy(), "") for g in got):
                    out.append(f"{stream}: no line {line!r}")
            continue
        if len(want) != len(got):
            missing = [w for w in want if not any(not unify_text(w, g, bindings.copy(), "") for g in got)]
            extra = [g for g in got if not any(not unify_text(w, g, bindings.copy(), "") for w in want)]
            out.append(
                f"{stream}: expected {len(want)} lines, got {len(got)};"
                f" missing {shortened(missing)}; unexpected {shortened(extra)}"
            )
            continue
        if command.get("unorderedLines"):
            out += unify_bag(want, got, bindings, {}, stream, (), False)
        else:
            for i, (w, g) in enumerate(zip(want, got, strict=False)):
                out += unify_text(w, g, bindings, f"{stream} line {i + 1}")
    return out


def replay_transcript(client, args, transcript, report):
    """Runs one transcript with the given kubectl; returns how many commands passed and failed."""
    version = kubectl_version(args.kubectl)
    bindings, answers, passed, failed = Bindings(), {}, 0, 0
    try:
        problem = prepare_objects(client, transcript, bindings)
        if problem:
            report(transcript["name"], "setup", [problem])
            return 0, sum("run" in c for c in transcript["commands"])
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = write_kubeconfig(args, folder)
            for command in transcript["commands"]:
                if command.get("pause"):
                    time.sleep(command["pause"])
                if "request" in command:  # something between two commands, for example what a kubelet would write
                    try:
                        request = resolve(bindings.fill(command["request"]), answers)
                        answers[command["name"]], problem = fetch(client, command, request)
                    except TROUBLE as error:
                        problem = f"{type(error).__name__}: {error}"
                    if problem:
                        report(transcript["name"], command["name"], [problem])
                        failed += 1
                    continue
                if command.get("only") and version not in command["only"]:
                    continue
                result = run_kubectl(args, kubeconfig, folder, {**command, "run": bindings.fill(command["run"])})
                problems = compare_kubectl(command, version, result, bindings)
                report(transcript["name"], command["run"], problems)
                failed, passed = failed + bool(problems), passed + (not problems)
    finally:
        clean_up(client, transcript, bindings)
    return passed, failed
