"""What is waited out when a claim is read inside a call of the kubelet, for how long, and what is an answer at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from small_api import FakeApi

from drakkar.drivers.kit.kind import PreparationError
from drakkar.drivers.kit.reading import REFUSED_SECONDS, read_claim
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError, UnreachableError
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiRequest, ApiResponse
from drakkar.preparation.values import ClaimRef, ClaimUID

PATH = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/c"
LIMIT = 30.0


class StrainedApi(FakeApi):
    """Answers the first `times` requests with `failure`, a status or an exception."""

    def __init__(self, failure: int | Exception, times: int) -> None:
        super().__init__()
        self.put(PATH, {"kind": "ResourceClaim"})
        self.failure, self.times = failure, times

    async def send(self, request: ApiRequest) -> ApiResponse:
        if self.times:
            self.times -= 1
            self.requests.append(f"{request.method} {request.path}")
            if isinstance(self.failure, Exception):
                raise self.failure
            body = {"kind": "Status", "code": self.failure, "reason": "Forbidden", "message": f"status {self.failure}"}
            return ApiResponse(self.failure, {}, body if self.failure != 404 else body | {"reason": "NotFound"})
        return await super().send(request)


def reading(api: FakeApi) -> tuple[Any, float]:
    """The claim or the error, and the seconds of the clock that it took."""
    clock = FakeClock()

    async def main() -> tuple[Any, float]:
        begun = clock.monotonic()
        ref = ClaimRef(ClaimUID("uid"), "c", "team-a")
        task = asyncio.ensure_future(read_claim(Client(api), clock, ref, until=begun + LIMIT))
        for _ in range(10_000):
            for _ in range(5):
                await asyncio.sleep(0)
            if task.done():
                break
            await clock.advance(0.02)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        return outcome, clock.monotonic() - begun

    return asyncio.run(main())


PASSING = [401, 403, 429, 500, 502, 503, 504, UnreachableError("connection refused")]


@pytest.mark.parametrize("failure", PASSING, ids=str)
def test_what_passes_by_itself_is_waited_out(failure: int | Exception) -> None:
    outcome, took = reading(StrainedApi(failure, 3))
    assert outcome["kind"] == "ResourceClaim"
    assert took < 0.5


@pytest.mark.parametrize("failure", [429, 503, UnreachableError("connection refused")], ids=str)
def test_a_server_that_stays_away_is_given_up_within_the_call(failure: int | Exception) -> None:
    api = StrainedApi(failure, 10_000)
    outcome, took = reading(api)
    assert isinstance(outcome, ApiError | UnreachableError)
    assert LIMIT - 1.1 <= took <= LIMIT
    assert len(api.requests) < 50, "the pauses grow"


def test_a_refusal_is_final_after_three_seconds() -> None:
    """No right at all must not cost every pod half a minute before it says so."""
    outcome, took = reading(StrainedApi(403, 10_000))
    assert isinstance(outcome, ApiError)
    assert outcome.status == 403
    assert REFUSED_SECONDS / 2 <= took <= REFUSED_SECONDS


@pytest.mark.parametrize("failure", [404, 400, 410, 422])
def test_an_answer_is_an_answer_at_once(failure: int) -> None:
    api = StrainedApi(failure, 10_000)
    outcome, took = reading(api)
    assert isinstance(outcome, PreparationError if failure == 404 else ApiError)
    assert isinstance(outcome, DrakkarError)
    assert took == 0
    assert len(api.requests) == 1
