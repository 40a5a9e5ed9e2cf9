"""The authorizer's methods. Selectors have no authorizer to call them on; they are declared, so that misuse is reported as
upstream reports it, and dyn values of other types find no overload.
"""

from __future__ import annotations

from typing import Final

from drakkar.cel.signatures import Library

_CHECK: Final = 350_000

AUTHORIZATION: Final = Library(
    name="authorization",
    declarations="""
kubernetes.authorization.Authorizer.path(string) -> kubernetes.authorization.PathCheck    authorizer_path
kubernetes.authorization.Authorizer.group(string) -> kubernetes.authorization.GroupCheck    authorizer_group
kubernetes.authorization.Authorizer.serviceAccount(string, string) -> kubernetes.authorization.Authorizer    authorizer_serviceaccount
kubernetes.authorization.GroupCheck.resource(string) -> kubernetes.authorization.ResourceCheck    groupcheck_resource
kubernetes.authorization.ResourceCheck.subresource(string) -> kubernetes.authorization.ResourceCheck    resourcecheck_subresource
kubernetes.authorization.ResourceCheck.namespace(string) -> kubernetes.authorization.ResourceCheck    resourcecheck_namespace
kubernetes.authorization.ResourceCheck.name(string) -> kubernetes.authorization.ResourceCheck    resourcecheck_name
kubernetes.authorization.ResourceCheck.fieldSelector(string) -> kubernetes.authorization.ResourceCheck    authorizer_fieldselector
kubernetes.authorization.ResourceCheck.labelSelector(string) -> kubernetes.authorization.ResourceCheck    authorizer_labelselector
kubernetes.authorization.ResourceCheck.check(string) -> kubernetes.authorization.Decision    resourcecheck_check
kubernetes.authorization.PathCheck.check(string) -> kubernetes.authorization.Decision    pathcheck_check
kubernetes.authorization.Decision.allowed() -> bool    decision_allowed
kubernetes.authorization.Decision.errored() -> bool    decision_errored
kubernetes.authorization.Decision.error() -> string    decision_error
kubernetes.authorization.Decision.reason() -> string    decision_reason
""",
    function_prices={"check": _CHECK},
)
