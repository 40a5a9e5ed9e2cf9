"""URLs in CEL: url("…") and its parts, with the rules of Go's net/url, which are not those of Python's urllib."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Any, Final

from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, OpaqueValue, size_of, tenth

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*", re.ASCII)
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_HOST: Final = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_PATH: Final = _UNRESERVED | frozenset("$&+,/:;=@")
_ENCODED_PATH: Final = _PATH | frozenset("!'()*[]%")
_FRAGMENT: Final = _PATH | frozenset("?!()*")
_USER: Final = _UNRESERVED | frozenset("!$&'()*+,;=:%@")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_REQUEST: Final = "URL parse error during conversion from string: "


class URLProblem(Exception):
    """What is wrong with a URL."""


class URLValue(OpaqueValue):
    """A parsed URL."""

    __slots__ = ("fragment", "host", "opaque", "path", "query", "scheme", "user")
    type_name = "kubernetes.URL"

    def __init__(self, scheme: str, opaque: str, user: str, host: str, path: str, query: str | None, fragment: str):
        self.scheme = scheme
        self.opaque = opaque
        self.user = user
        self.host = host
        self.path = path
        self.query = query
        self.fragment = fragment

    def shown(self) -> str:
        """The URL, written canonically."""
        text = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            text += self.opaque
        elif self.host or self.user or (self.scheme and self.path):
            text += f"//{self.user}{self.host}"
        text += self.path
        if self.query is not None:
            text += f"?{self.query}"
        return f"{text}#{_escaped(self.fragment, _FRAGMENT)}" if self.fragment else text

    def same(self, other: Any) -> bool:
        """Equality of the whole URL, written canonically."""
        return all(getattr(self, name) == getattr(other, name) for name in URLValue.__slots__)


def _unescaped(text: str, allowed: frozenset[str] | None = None, plus: bool = False) -> str:
    """Percent escapes resolved; in hosts (`allowed` given) only %25 and bytes beyond ASCII may be escaped."""
    data = bytearray()
    index = 0
    while index < len(text):
        character = text[index]
        if character == "%":
            code = text[index + 1 : index + 3]
            if len(code) < 2 or not _HEX.issuperset(code):
                raise URLProblem(f'invalid URL escape "{text[index : index + 3]}"')
            if allowed is not None and int(code[0], 16) < 8 and code != "25":
                raise URLProblem(f'invalid URL escape "%{code}"')
            data.append(int(code, 16))
            index += 3
            continue
        if allowed is not None and character < "\x80" and character not in allowed:
            raise URLProblem(f'invalid character "{character}" in host name')
        data += b" " if plus and character == "+" else character.encode()
        index += 1
    return data.decode(errors="surrogateescape")


def _escaped(text: str, allowed: frozenset[str]) -> str:
    pieces = []
    for byte in text.encode(errors="surrogateescape"):
        character = chr(byte)
        pieces.append(character if byte < 128 and character in allowed else f"%{byte:02X}")
    return "".join(pieces)


def _split_scheme(text: str) -> tuple[str, str]:
    if text[:1] == ":":
        raise URLProblem("missing protocol scheme")
    found = _SCHEME.match(text)
    if found is None or text[found.end() : found.end() + 1] != ":":
        return "", text
    return found.group().lower(), text[found.end() + 1 :]


def _parse(text: str, *, request: bool) -> URLValue:
    """A URL as Go's ParseRequestURI (if `request`) or Parse reads it, without the fragment."""
    if any(character < " " or character == "\x7f" for character in text):
        raise URLProblem("net/url: invalid control character in URL")
    if not text and request:
        raise URLProblem("empty url")
    if text == "*":
        return URLValue("", "", "", "", "*", None, "")
    scheme, rest = _split_scheme(text)
    rest, mark, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return URLValue(scheme, rest, "", "", "", query if mark else None, "")
        if request:
            raise URLProblem("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise URLProblem("first path segment in URL cannot contain colon")
    user = host = ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        user, host = _authority(scheme, authority)
        rest = slash + path
    return URLValue(scheme, "", user, host, _canonical_path(rest), query if mark else None, "")


def _canonical_path(text: str) -> str:
    """The path as getEscapedPath() gives it: as written if that is a valid encoding, else encoded anew."""
    plain = _unescaped(text)
    return text if all(character in _ENCODED_PATH for character in text) else _escaped(plain, _PATH)


def _authority(scheme: str, text: str) -> tuple[str, str]:
    user, at, host_text = text.rpartition("@")
    host = _host(scheme, host_text)
    if at:
        if not all(character in _USER for character in user):
            raise URLProblem("net/url: invalid userinfo")
        name, colon, password = user.partition(":")
        user = _unescaped(name) + colon + _unescaped(password) + at
    return user, host


def _host(scheme: str, text: str) -> str:
    bracket = text.rfind("[")
    if bracket > 0:
        raise URLProblem("invalid IP-literal")
    if bracket == 0:
        end = text.rfind("]")
        if end < 0:
            raise URLProblem("missing ']' in host")
        port = text[end + 1 :]
        if not _PORT.fullmatch(port):
            raise URLProblem(f'invalid port "{port}" after host')
        return _bracketed(text[: end + 1]) + port
    # Only http and https are strict about colons in a host; elsewhere the last one begins the port.
    colon = text.find(":") if scheme in ("http", "https") else text.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(text[colon:]):
        raise URLProblem(f'invalid port "{text[colon:]}" after host')
    return _unescaped(text, _HOST)


def _bracketed(text: str) -> str:
    """An IPv6 literal in brackets, perhaps with a zone after %25."""
    zone = text.find("%25")
    if zone < 0:
        plain = _unescaped(text, _HOST)
    else:
        plain = _unescaped(text[:zone], _HOST) + _unescaped(text[zone:-1]) + "]"
    address, percent, name = plain[1:-1].partition("%")
    try:
        IPv6Address(address)
    except ValueError:
        raise URLProblem(f'invalid host: ParseAddr("{plain[1:-1]}"): unable to parse IP') from None
    if percent and not name:
        raise URLProblem(f'invalid host: ParseAddr("{plain[1:-1]}"): zone must be a non-empty string')
    return plain


def parse_url(text: str) -> URLValue:
    """A URL that is absolute or an absolute path; raises `URLProblem`."""
    _parse(text, request=True)
    head, mark, fragment = text.partition("#")
    value = _parse(head, request=False)
    if mark:
        value.fragment = _unescaped(fragment)
    return value


def parse_reference(text: str) -> URLValue:
    """Any URL, also a relative one or nothing, as Go's url.Parse reads it; raises `URLProblem`."""
    head, _, fragment = text.partition("#")
    value = _parse(head, request=False)
    value.fragment = _unescaped(fragment)
    return value


def parse_request_uri(text: str) -> None:
    """Check a URL as Go's ParseRequestURI does; raises `URLProblem`."""
    try:
        _parse(text, request=True)
    except URLProblem as problem:
        raise URLProblem(f'parse "{text}": {problem}') from None


def _url(text: str) -> Any:
    try:
        return parse_url(text)
    except URLProblem as problem:
        return Failure(f'{_REQUEST}parse "{text}": {problem}')


def _is_url(text: str) -> bool:
    try:
        _parse(text, request=True)
    except URLProblem:
        return False
    return True


def _split_port(host: str) -> tuple[str, str]:
    colon = host.rfind(":")
    port = ""
    if colon >= 0 and _PORT.fullmatch(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _query(value: URLValue) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in (value.query or "").split("&"):
        if not part or ";" in part:
            continue
        key, _, item = part.partition("=")
        try:
            found.setdefault(_unescaped(key, plus=True), []).append(_unescaped(item, plus=True))
        except URLProblem:
            found = {name: items for name, items in found.items() if items}
    return found


def _walk(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


URLS: Final = Library(
    name="url",
    declarations="""
url(string) -> kubernetes.URL    string_to_url
isURL(string) -> bool    is_url_string
kubernetes.URL.getEscapedPath() -> string    url_get_escaped_path
kubernetes.URL.getHost() -> string    url_get_host
kubernetes.URL.getHostname() -> string    url_get_hostname
kubernetes.URL.getPort() -> string    url_get_port
kubernetes.URL.getQuery() -> map(string, list(string))    url_get_query
kubernetes.URL.getScheme() -> string    url_get_scheme
""",
    implementations={
        "string_to_url": _url,
        "is_url_string": _is_url,
        "url_get_escaped_path": lambda value: value.path,
        "url_get_host": lambda value: value.host,
        "url_get_hostname": lambda value: _split_port(value.host)[0],
        "url_get_port": lambda value: _split_port(value.host)[1],
        "url_get_query": _query,
        "url_get_scheme": lambda value: value.scheme,
    },
    function_prices={"url": _walk},
)
