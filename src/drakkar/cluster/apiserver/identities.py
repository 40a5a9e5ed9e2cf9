"""Who asks: bearer tokens, service account tokens and impersonation (`k8s.io/apiserver` authentication).

A service account token is a JWT as in Kubernetes; it is signed with HMAC, since only this server ever verifies it and a
symmetric key costs neither a heavy import nor milliseconds per request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver import statuses

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
ISSUER: Final = "https://kubernetes.default.svc"


class User(msgspec.Struct, frozen=True):
    """Whom a request speaks for."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def info(self) -> dict[str, Any]:
        """`authentication.k8s.io/v1` UserInfo."""
        answer: dict[str, Any] = {"username": self.name}
        if self.uid:
            answer["uid"] = self.uid
        if self.groups:
            answer["groups"] = list(self.groups)
        if self.extra:
            answer["extra"] = {key: list(values) for key, values in self.extra.items()}
        return answer


ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))
ADMIN: Final = User("kubernetes-admin", (MASTERS, AUTHENTICATED))


def service_account(
    namespace: str, name: str, uid: str = "", extra: Mapping[str, tuple[str, ...]] | None = None
) -> User:
    """The user that a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}", groups, uid, extra or {})


class Tokens:
    """Static bearer tokens and the key that signs service account tokens."""

    def __init__(self, key: bytes = b"") -> None:
        self.key = key or secrets.token_bytes(32)
        self._users: dict[str, User] = {}
        self._still_there: Callable[[str, str, str, str], bool] = lambda *_: True

    def bind(self, still_there: Callable[[str, str, str, str], bool]) -> None:
        """Say how to see whether the object a token is bound to still exists: (resource, namespace, name, uid)."""
        self._still_there = still_there

    def add(self, token: str, user: User) -> None:
        """Let `token` speak for `user`."""
        self._users[token] = user

    def user(self, token: str, now: float) -> User | None:
        """Whose token it is at the time `now` (seconds since the epoch); None if nobody's."""
        known = self._users.get(token)
        if known is not None:
            return known
        claims = self._verify(token)
        if claims is None or not claims.get("nbf", 0) <= now + 1 or claims.get("exp", 0) <= now:
            return None
        return self._service_account(claims)

    def audiences(self, token: str) -> list[str]:
        claims = self._verify(token)
        return list(claims["aud"]) if claims else [ISSUER]

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        now: float,
        seconds: int,
        *,
        audiences: list[str] | None = None,
        bound: Mapping[str, Mapping[str, str]] | None = None,
    ) -> str:
        """A token for a service account; `bound` has the claims of the object it is bound to (pod, node, secret)."""
        claims = {
            "aud": audiences or [ISSUER],
            "exp": int(now) + seconds,
            "iat": int(now),
            "iss": ISSUER,
            "jti": _uuid(),
            "kubernetes.io": {"namespace": namespace, **(bound or {}), "serviceaccount": {"name": name, "uid": uid}},
            "nbf": int(now),
            "sub": f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}",
        }
        head = _encode({"alg": "HS256", "typ": "JWT"}) + "." + _encode(claims)
        return f"{head}.{self._signature(head)}"

    def _signature(self, head: str) -> str:
        digest = hmac.new(self.key, head.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _verify(self, token: str) -> dict[str, Any] | None:
        head, _, signature = token.rpartition(".")
        if head.count(".") != 1 or not token.isascii() or not hmac.compare_digest(self._signature(head), signature):
            return None
        text = head.split(".")[1]
        claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return claims

    def _service_account(self, claims: Mapping[str, Any]) -> User | None:
        private = claims.get("kubernetes.io", {})
        account, namespace = private["serviceaccount"], private["namespace"]
        if not self._still_there("serviceaccounts", namespace, account["name"], account["uid"]):
            return None
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        for kind in ("pod", "node"):
            if kind not in private:
                continue
            one = private[kind]
            if kind == "pod" and not self._still_there("pods", namespace, one["name"], one["uid"]):
                return None
            extra[f"authentication.kubernetes.io/{kind}-name"] = (one["name"],)
            extra[f"authentication.kubernetes.io/{kind}-uid"] = (one.get("uid", ""),)
        return service_account(namespace, account["name"], account["uid"], extra)


def _encode(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).rstrip(b"=").decode()


def _uuid() -> str:
    import uuid

    return str(uuid.uuid4())


def authenticate(headers: Mapping[str, str], tokens: Tokens, now: float) -> User:
    """The user of the Authorization header, anonymous without one; raises `StatusError` 401 for bad credentials."""
    text = headers.get("authorization", "")
    if not text:
        return ANONYMOUS
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        if scheme.lower() == "bearer":
            return ANONYMOUS
        raise statuses.unauthorized()
    user = tokens.user(token.strip(), now)
    if user is None:
        raise statuses.unauthorized()
    return user


class Impersonation(msgspec.Struct):
    """What the Impersonate-* headers ask for, and the permissions that takes: (group, resource, namespace, name)."""

    user: User
    needs: list[tuple[str, str, str, str, str]]


_ESCAPE = re.compile("%([0-9a-fA-F]{2})")


def impersonation(headers: Mapping[str, str]) -> Impersonation | None:
    """Read the headers; repeated group and extra headers arrive joined by newlines. None if there are none.

    Raises `StatusError` 500 if groups or extras come without a user, as Kubernetes does.
    """
    name = headers.get("impersonate-user", "")
    groups = [one for one in headers.get("impersonate-group", "").split("\n") if one]
    uid = headers.get("impersonate-uid", "")
    extra = {
        _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), key.removeprefix("impersonate-extra-")): tuple(
            value.split("\n")
        )
        for key, value in headers.items()
        if key.startswith("impersonate-extra-")
    }
    if not name:
        if groups or uid or extra:
            raise statuses.internal_error("requested to impersonate, but no user was named in Impersonate-User")
        return None
    needs: list[tuple[str, str, str, str, str]] = []
    if name.startswith(SERVICE_ACCOUNT_PREFIX) and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        needs.append(("", "serviceaccounts", "", namespace, account))
        if not groups:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        else:
            needs += [("", "groups", "", "", group) for group in groups]
    else:
        needs.append(("", "users", "", "", name))
        needs += [("", "groups", "", "", group) for group in groups]
    for key, values in extra.items():
        needs += [("authentication.k8s.io", "userextras", key, "", value) for value in values]
    if uid:
        needs.append(("authentication.k8s.io", "uids", "", "", uid))
    automatic = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if automatic not in groups and UNAUTHENTICATED not in groups:
        groups.append(automatic)
    return Impersonation(User(name, tuple(groups), uid, extra), needs)
