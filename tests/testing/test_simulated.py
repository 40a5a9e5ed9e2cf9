"""Test clusters in simulated time: a day is a call, and nothing happens unasked."""

from __future__ import annotations

import asyncio
import textwrap
from datetime import timedelta

import pytest

from drakkar.errors import DrakkarError
from drakkar.kube.clock import SystemClock
from drakkar.kube.simulated import EPOCH
from drakkar.testing.clusters import EmbeddedCluster

pytest_plugins = ["pytester"]


def test_time_stands_still_between_calls_and_sleepers_of_other_loops_wake_in_it() -> None:
    with EmbeddedCluster(speed=0, seed=3) as cluster:
        begun = cluster.clock.now()
        assert begun - EPOCH < timedelta(minutes=1)
        assert cluster.advance("24h") == begun + timedelta(hours=24) == cluster.clock.now()
        waited: list[float] = []

        async def controller() -> None:
            """Somebody's controller with a back-off of a day, in its own loop."""
            sleeping = asyncio.create_task(cluster.clock.sleep(86_400))
            await asyncio.sleep(0)  # it begins, and is the first to reach the cluster's loop
            moved = await asyncio.to_thread(cluster.advance, "25h")
            await sleeping
            waited.append((moved - begun).total_seconds())

        asyncio.run(controller())
        assert waited == [49 * 3600]
        assert cluster.add_node("t4") == "t4-0"
        end = cluster.clock.monotonic() + 90
        assert cluster.until(lambda: cluster.clock.monotonic() >= end, every="30s") == cluster.clock.now()
        with pytest.raises(AssertionError, match="did not happen within 2m"):
            cluster.until(lambda: False, within="2m", every="1m")
        with pytest.raises(DrakkarError, match="no duration"):
            cluster.advance("tomorrow")


def test_a_cluster_in_real_time_cannot_be_advanced() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(DrakkarError) as refused:
        cluster.advance("1h")
    assert refused.value.reason == "RealTime"
    assert isinstance(cluster.clock, SystemClock)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_mark_says_how_a_tests_cluster_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        textwrap.dedent("""
        import pytest

        @pytest.mark.drakkar(speed=0, seed=7)
        def test_a_day(cluster):
            begun = cluster.clock.now()
            assert (cluster.advance("1d") - begun).days == 1

        @pytest.mark.drakkar(pace=3)
        def test_mistaken(cluster):
            pass
        """)
    )
    words = ("-p", "drakkar.testing.plugin", "-p", "no:cacheprovider", "--strict-markers")
    result = pytester.runpytest_subprocess(*words)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the mark drakkar does not know pace; it knows runtime, seed, speed*"])
