"""Where a webhook is called, by URL or behind a service, and with which versions of a review: admission, conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api.fields import FieldError, invalid, quote, required
from drakkar.cel.libraries.url import URLProblem, parse_reference
from drakkar.kube import names

__all__ = ["REVIEW_VERSIONS", "check_client", "check_review_versions", "is_recognised"]

Json = Mapping[str, Any]
Found = list[FieldError]
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
"""What the server can send, of AdmissionReview as of ConversionReview."""


def is_recognised(versions: Sequence[str]) -> bool:
    """Whether the server can send one of the versions."""
    return any(version in REVIEW_VERSIONS for version in versions)


def check_review_versions(versions: Sequence[str], path: str, *, recognised: bool = True) -> Found:
    """The versions that a webhook reads, of which there are some; `recognised`: the server must know one of them."""
    found: Found = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            found.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            found += [invalid(f"{path}[{index}]", version, text) for text in names.dns_1035_label(version)]
    if recognised and not is_recognised(versions):
        found.append(invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))
    return found


def check_client(config: Json, path: str) -> Found:
    """A URL or a service, and not both."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if url is not None:
        return _check_url(url, f"{path}.url")
    return _check_service(service or {}, f"{path}.service")


def _check_url(url: str, path: str) -> Found:
    form = "; desired format: https://host[/path]"
    try:
        parts = parse_reference(url)
    except URLProblem as problem:
        return [required(path, f"url must be a valid URL: parse {quote(url)}: {problem}{form}")]
    found: Found = []
    if parts.scheme != "https":
        found.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not parts.host:
        found.append(invalid(path, parts.host, f"host must be specified{form}"))
    if parts.user:
        found.append(invalid(path, parts.user.removesuffix("@"), "user information is not permitted in the URL"))
    if parts.fragment:
        found.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return found


def _check_service(service: Json, path: str) -> Found:
    found = [required(f"{path}.{name}") for name in ("name", "namespace") if not service.get(name)]
    port = service.get("port") or 0
    if not 1 <= port <= 65535:
        found.append(invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive"))
    return found + _service_path(service.get("path"), f"{path}.path")


def _service_path(url_path: str | None, path: str) -> Found:
    if url_path in (None, "", "/"):
        return []
    assert url_path is not None
    if url_path == "//":
        return [invalid(path, url_path, "segment[0] may not be empty")]
    found = [] if url_path.startswith("/") else [invalid(path, url_path, "must start with a '/'")]
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            found.append(invalid(path, url_path, f"segment[{index}] may not be empty"))
            continue
        found += [invalid(path, url_path, f"segment[{index}]: {text}") for text in names.dns_subdomain(step)]
    return found
