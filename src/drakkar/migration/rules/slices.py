"""ResourceSlices that people write themselves: generations, counts, counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drakkar.migration.documents import Document
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule


def _slices(review: Review) -> list[Document]:
    return [document for document in review.kind("ResourceSlice") if review.served(document)]


def _pool(document: Document) -> dict[str, Any]:
    pool = document.at(("spec", "pool"))
    return pool if isinstance(pool, dict) else {}


@rule("slices")
def generation(review: Review) -> Iterator[Finding]:
    """A pool without generation."""
    for document in _slices(review):
        pool = _pool(document)
        if pool and "generation" not in pool:
            yield document.finding(
                "slice-generation-missing",
                ("spec", "pool"),
                "without pool.generation the slice belongs to generation 0 and can never replace an older inventory;"
                " count it"
                " up with every change of the pool",
                "generation: 1",
            )


@rule("slices")
def count(review: Review) -> Iterator[Finding]:
    """Slices of one pool and generation, and the number that each of them claims."""
    pools: dict[tuple[str, str, str], list[Document]] = {}
    for document in _slices(review):
        pool = _pool(document)
        if type(pool.get("resourceSliceCount")) is int:
            key = (str(document.at(("spec", "driver"))), str(pool.get("name")), str(pool.get("generation", 0)))
            pools.setdefault(key, []).append(document)
    for (_, name, newest), documents in pools.items():
        for document in documents:
            claimed = _pool(document)["resourceSliceCount"]
            if claimed != len(documents):
                yield document.finding(
                    "slice-count-mismatch",
                    ("spec", "pool", "resourceSliceCount"),
                    f"pool {name} has {len(documents)} slices of generation {newest}, this one says {claimed}: the"
                    " pool is"
                    f" incomplete and nothing of it is allocated",
                    str(len(documents)),
                )


@rule("slices")
def counters(review: Review) -> Iterator[Finding]:
    """Counters and devices in one slice; servers before 1.35 accept that."""
    for document in _slices(review):
        if review.minor >= 35 and document.at(("spec", "sharedCounters")) and document.at(("spec", "devices")):
            yield document.finding(
                "slice-counters-and-devices",
                ("spec", "sharedCounters"),
                "a slice holds either sharedCounters or devices: put the counters into a slice of their own in the"
                " same pool"
                " and generation, and raise resourceSliceCount",
            )
