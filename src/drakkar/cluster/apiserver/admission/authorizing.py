"""The `authorizer` of admission expressions (KEP-3488): questions to this server's own authorisation, in CEL.

    authorizer.group("apps").resource("deployments").namespace("prod").check("create").allowed()

The user is the one who made the request, unless a service account is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, OpaqueValue
from drakkar.cluster.apiserver.authorization import Attributes, Decision
from drakkar.cluster.apiserver.identities import User, service_account
from drakkar.kube import names

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.admission.asked import Asked
    from drakkar.cluster.apiserver.authorization import Authorizer

__all__ = ["LIBRARY", "bindings"]

_PACKAGE: Final = "kubernetes.authorization."


class AuthorizerValue(OpaqueValue):
    """Somebody's rights."""

    __slots__ = ("authorizer", "user")
    type_name = _PACKAGE + "Authorizer"

    def __init__(self, authorizer: Authorizer, user: User) -> None:
        self.authorizer = authorizer
        self.user = user


class Check(OpaqueValue):
    """A question under construction; `type_name` says how far it has come."""

    __slots__ = ("asked", "of", "type_name")

    def __init__(self, of: AuthorizerValue, kind: str, asked: Attributes) -> None:
        self.of = of
        self.type_name = _PACKAGE + kind
        self.asked = asked

    def narrowed(self, **parts: str) -> Check:
        """The same question about less."""
        return Check(self.of, "ResourceCheck", msgspec.structs.replace(self.asked, **parts))

    def decided(self, verb: str) -> DecisionValue:
        """The answer for a verb."""
        asked = msgspec.structs.replace(self.asked, verb=verb)
        return DecisionValue(self.of.authorizer.decide(self.of.user, asked))


class DecisionValue(OpaqueValue):
    """An answer."""

    __slots__ = ("decision",)
    type_name = _PACKAGE + "Decision"

    def __init__(self, decision: Decision) -> None:
        self.decision = decision


def bindings(asked: Asked) -> dict[str, Any]:
    """The two variables for a request: `authorizer`, and the resource that the request is about."""
    of = AuthorizerValue(asked.call.server.authorizer, asked.call.user)
    row = asked.row
    about = Attributes("", row.group, row.plural, asked.subresource, asked.namespace, asked.object_name)
    return {"authorizer": of, "authorizer.requestResource": Check(of, "ResourceCheck", about)}


def _path(of: AuthorizerValue, path: str) -> Any:
    return Check(of, "PathCheck", Attributes("", path=path)) if path.strip() else Failure("path must not be empty")


def _group(of: AuthorizerValue, group: str) -> Any:
    return Check(of, "GroupCheck", Attributes("", group))


def _account(of: AuthorizerValue, namespace: str, name: str) -> Any:
    if names.dns_subdomain(name):
        return Failure("Invalid service account name")
    if names.dns_label(namespace):
        return Failure("Invalid service account namespace")
    return AuthorizerValue(of.authorizer, service_account(namespace, name))


def _resource(check: Check, resource: str) -> Any:
    return check.narrowed(resource=resource) if resource.strip() else Failure("resource must not be empty")


LIBRARY: Final = Library(
    name="authorization of this server",
    implementations={
        "authorizer_path": _path,
        "authorizer_group": _group,
        "authorizer_serviceaccount": _account,
        "groupcheck_resource": _resource,
        "resourcecheck_subresource": lambda check, name: check.narrowed(subresource=name),
        "resourcecheck_namespace": lambda check, name: check.narrowed(namespace=name),
        "resourcecheck_name": lambda check, name: check.narrowed(name=name),
        "authorizer_fieldselector": lambda check, selector: check.narrowed(field_selector=selector),
        "authorizer_labelselector": lambda check, _: check,
        "resourcecheck_check": lambda check, verb: check.decided(verb),
        "pathcheck_check": lambda check, verb: check.decided(verb),
        "decision_allowed": lambda answer: answer.decision.allowed,
        "decision_errored": lambda answer: False,
        "decision_error": lambda answer: "",
        "decision_reason": lambda answer: answer.decision.reason,
    },
)
"""What the overloads of the authorisation library do here."""
