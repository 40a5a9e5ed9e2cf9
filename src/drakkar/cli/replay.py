"""`drakkar replay`: a recorded cluster that kubectl can look around in, days later and far away.

It is `up` without machines: what was recorded is put into the store of an embedded cluster, and stays as it was.
"""

from __future__ import annotations

from pathlib import Path

import click

from drakkar.cli.options import name, output
from drakkar.cli.simulated_time import AskedTime, time_options


@click.command("replay")
@click.argument("snapshot", type=click.Path(path_type=Path))
@name
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of the API server; free one by default.")
@time_options
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; `drakkar down` ends it.")
@click.option("-v", "--verbose", is_flag=True, help="Log what every part does.")
@output
def command(snapshot: Path, name: str, port: int, time: AskedTime, detach: bool, verbose: bool, output: str) -> None:
    """Show a recorded cluster again, as it was.

    SNAPSHOT is a bundle that `drakkar capture` took (folder or tar), or a file of objects (kubectl get -o json).
    Objects keep their UIDs, status and times. No kubelet runs, and no controller changes what was recorded; the
    scheduler places new pods only, so that one can try what a pod would have got. With --speed time is simulated and
    begins when the snapshot was taken: ages are those of then.

    \b
    drakkar replay incident.tar.gz --detach --name incident
    """
    from drakkar.cli.up import detach_cluster, log_to, run_cluster
    from drakkar.cluster.places import occupied, places
    from drakkar.evidence.recorded import load
    from drakkar.kube.clock import rfc3339

    where = places(name)
    recorded = load(snapshot)
    pace = time.options(start=rfc3339(recorded.captured_at) if recorded.captured_at is not None else "")
    if detach:
        detach_cluster(where, output)
        return
    with occupied(where):
        log_to(where, verbose)
        run_cluster(where, output, port=port, runtime="process", recorded=recorded, **pace)
