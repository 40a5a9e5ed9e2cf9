"""Who asks: tokens, service accounts, impersonation."""

from __future__ import annotations

import asyncio

import pytest

from drakkar.cluster.apiserver.identities import ADMIN, ANONYMOUS, Tokens, User, authenticate, impersonation
from drakkar.cluster.apiserver.statuses import StatusError
from tests.cluster.apiserver.world import NOW, PODS, World, pod

TIME = NOW.timestamp()


def test_a_static_token_and_no_token() -> None:
    tokens = Tokens()
    tokens.add("secret", ADMIN)
    assert authenticate({"authorization": "Bearer secret"}, tokens, TIME) is ADMIN
    assert authenticate({"authorization": "bearer  secret "}, tokens, TIME) is ADMIN
    assert authenticate({}, tokens, TIME) is ANONYMOUS


@pytest.mark.parametrize(
    "header",
    ["Bearer nonsense", "Basic abc", "Bearer a.b.c", "Bearer ä", "Bearer " + "x" * 100_000, "Bearer ..", "Digest x"],
)
def test_wrong_credentials_are_401_never_anonymous(header: str) -> None:
    with pytest.raises(StatusError) as caught:
        authenticate({"authorization": header}, Tokens(), TIME)
    assert caught.value.code == 401


def test_a_service_account_token_lives_as_long_as_it_says_and_only_here() -> None:
    tokens = Tokens()
    token = tokens.issue("team-a", "bot", "uid-1", TIME, 600)
    user = tokens.user(token, TIME + 1)
    assert user is not None and user.name == "system:serviceaccount:team-a:bot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated")
    assert tokens.user(token, TIME + 601) is None, "expired"
    assert Tokens().user(token, TIME + 1) is None, "another cluster's"
    head, _, signature = token.rpartition(".")
    assert tokens.user(f"{head[:-2]}xx.{signature}", TIME) is None, "changed"


def test_a_token_dies_with_the_objects_it_is_bound_to() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        made = await world.made(PODS, pod("p"))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
        body = {"spec": {"audiences": [], "expirationSeconds": 600, "boundObjectRef": reference}}
        answer = await world.post("/api/v1/namespaces/default/serviceaccounts/default/token", body)
        token = answer.body["status"]["token"]
        user = world.server.tokens.user(token, TIME)
        assert user is not None and user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
        await world.delete(f"{PODS}/p")
        assert world.server.tokens.user(token, TIME) is None

    asyncio.run(main())


def test_impersonating_needs_the_right_for_user_and_each_group() -> None:
    wanted = impersonation({"impersonate-user": "jane", "impersonate-group": "dev\nops"})
    assert wanted is not None
    assert wanted.user == User("jane", ("dev", "ops", "system:authenticated"), "", {})
    assert [need[1] + "/" + need[4] for need in wanted.needs] == ["users/jane", "groups/dev", "groups/ops"]


def test_groups_without_a_user_cannot_be_impersonated() -> None:
    with pytest.raises(StatusError):
        impersonation({"impersonate-group": "system:masters"})


def test_an_ordinary_user_cannot_become_an_administrator() -> None:
    async def main() -> None:
        headers = {"impersonate-user": "root", "impersonate-group": "system:masters"}
        answer = await World().get("/api/v1/nodes", headers=headers, user=User("jane", ("system:authenticated",)))
        assert answer.status == 403
        assert answer.body["message"] == (
            'users "root" is forbidden: User "jane" cannot impersonate resource "users" in API group ""'
            " at the cluster scope"
        )

    asyncio.run(main())
