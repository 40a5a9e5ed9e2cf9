"""The authorizer's methods.

Selectors have no authorizer to call them on; they are declared, so that misuse is reported as upstream reports it,
and dyn values of other types find no overload.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel.estimates import AUTHORIZATION_CHECK, selector_price
from drakkar.cel.signatures import Library
from drakkar.cel.values import size_of

_PACKAGE: Final = "kubernetes.authorization."
_METHODS: Final = (
    ("Authorizer", "path(string)", "PathCheck", "authorizer_path"),
    ("Authorizer", "group(string)", "GroupCheck", "authorizer_group"),
    ("Authorizer", "serviceAccount(string, string)", "Authorizer", "authorizer_serviceaccount"),
    ("GroupCheck", "resource(string)", "ResourceCheck", "groupcheck_resource"),
    ("ResourceCheck", "subresource(string)", "ResourceCheck", "resourcecheck_subresource"),
    ("ResourceCheck", "namespace(string)", "ResourceCheck", "resourcecheck_namespace"),
    ("ResourceCheck", "name(string)", "ResourceCheck", "resourcecheck_name"),
    ("ResourceCheck", "fieldSelector(string)", "ResourceCheck", "authorizer_fieldselector"),
    ("ResourceCheck", "labelSelector(string)", "ResourceCheck", "authorizer_labelselector"),
    ("PathCheck", "check(string)", "Decision", "pathcheck_check"),
    ("ResourceCheck", "check(string)", "Decision", "resourcecheck_check"),
    ("Decision", "allowed()", "bool", "decision_allowed"),
    ("Decision", "errored()", "bool", "decision_errored"),
    ("Decision", "error()", "string", "decision_error"),
    ("Decision", "reason()", "string", "decision_reason"),
)


def _declaration(target: str, method: str, result: str, overload: str) -> str:
    produced = result if result in ("bool", "string") else _PACKAGE + result
    return f"{_PACKAGE}{target}.{method} -> {produced}    {overload}"


def _selector_price(arguments: Any, _: Any) -> int:
    size = size_of(arguments[1])
    return selector_price((size, size))[1]


AUTHORIZATION: Final = Library(
    name="authorization",
    declarations="\n".join(_declaration(*method) for method in _METHODS),
    function_prices={
        "check": AUTHORIZATION_CHECK,
        **dict.fromkeys(("fieldSelector", "labelSelector"), _selector_price),
    },
)
