"""Where a webhook is called: a URL, or a service behind which it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drakkar.api.fields import FieldError, invalid, quote, required
from drakkar.cel.libraries.url import URLProblem, parse_reference
from drakkar.kube import names

__all__ = ["check_service", "check_url"]

Json = Mapping[str, Any]
Found = list[FieldError]


def check_url(url: str, path: str) -> Found:
    """A URL by which a webhook is called."""
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


def check_service(service: Json, path: str) -> Found:
    """A service behind which a webhook is."""
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
