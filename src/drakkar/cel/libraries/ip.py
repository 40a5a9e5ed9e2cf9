"""IP addresses and networks in CEL: ip("…"), cidr("…") (KEP-4358), with Go's netip rules.

Zones and IPv4-mapped IPv6 addresses are refused; a network may have host bits set.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, OpaqueValue, size_of, tenth

Address = IPv4Address | IPv6Address

_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_LOCAL_MULTICAST: Final = IPv4Network("224.0.0.0/24")
_LOCAL_UNICAST: Final = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))
_NETWORK_PROBLEM: Final = "network address parse error during conversion from string: "


class IPValue(OpaqueValue):
    """An address."""

    __slots__ = ("address",)
    type_name = "net.IP"

    def __init__(self, address: Address) -> None:
        self.address = address

    def size(self) -> int:
        """The number of its bytes."""
        return len(self.address.packed)

    def shown(self) -> str:
        """The address."""
        return str(self.address)

    def same(self, other: Any) -> bool:
        """Equality by address."""
        return bool(self.address == other.address)

    def identity(self) -> Any:
        """Equal addresses are the same map key."""
        return self.address


class CIDRValue(OpaqueValue):
    """A network, which keeps its host bits."""

    __slots__ = ("address", "bits")
    type_name = "net.CIDR"

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def size(self) -> int:
        """The number of bytes of the prefix."""
        return -(-self.bits // 8)

    def shown(self) -> str:
        """Address and length."""
        return f"{self.address}/{self.bits}"

    def same(self, other: Any) -> bool:
        """Equality by address and length."""
        return bool(self.address == other.address) and bool(self.bits == other.bits)

    def identity(self) -> Any:
        """Equal networks are the same map key."""
        return self.address, self.bits

    def network(self, address: Address, bits: int) -> int:
        """The leading bits of an address of this family."""
        return int(address) >> (address.max_prefixlen - bits)


def _parse(text: str) -> Address | None:
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except (AddressValueError, ValueError):
        return None


def _address(text: str) -> Address | str:
    """The address, or what is wrong with the text."""
    address = _parse(text)
    if address is None:
        reason = f'ParseAddr("{text}"): unable to parse IP'
        return f'IP Address "{text}" parse error during conversion from string: {reason}'
    if isinstance(address, IPv6Address):
        if "%" in text:
            return f'IP address "{text}" with zone value is not allowed'
        if address.ipv4_mapped is not None:
            return f'IPv4-mapped IPv6 address "{text}" is not allowed'
    return address


def _network(text: str) -> CIDRValue | str:
    host, slash, bits = text.rpartition("/")
    if not slash:
        return f"netip.ParsePrefix(\"{text}\"): no '/'"
    address = _parse(host)
    if address is None:
        return f'netip.ParsePrefix("{text}"): ParseAddr("{host}"): unable to parse IP'
    if "%" in host:
        return f'netip.ParsePrefix("{text}"): IPv6 zones cannot be present in a prefix'
    if not _BITS.fullmatch(bits):
        return f'netip.ParsePrefix("{text}"): bad bits after slash: "{bits}"'
    if int(bits) > address.max_prefixlen:
        return f'netip.ParsePrefix("{text}"): prefix length out of range'
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return f'IPv4-mapped IPv6 address "{text}" is not allowed'
    return CIDRValue(address, int(bits))


def _ip(text: str) -> Any:
    address = _address(text)
    return Failure(address) if isinstance(address, str) else IPValue(address)


def _cidr(text: str) -> Any:
    network = _network(text)
    return Failure(_NETWORK_PROBLEM * 2 + network) if isinstance(network, str) else network


def _is_canonical(text: str) -> Any:
    address = _address(text)
    return Failure(address) if isinstance(address, str) else str(address) == text


def _is_local_unicast(value: IPValue) -> bool:
    return any(value.address in network for network in _LOCAL_UNICAST if network.version == value.address.version)


def _is_local_multicast(value: IPValue) -> bool:
    address = value.address
    if isinstance(address, IPv4Address):
        return address in _LOCAL_MULTICAST
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _is_global_unicast(value: IPValue) -> bool:
    address = value.address
    if str(address) in ("0.0.0.0", "255.255.255.255"):  # noqa: S104 - compared, not bound
        return False
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not special and not _is_local_unicast(value)


def _contains_ip(network: CIDRValue, value: IPValue) -> bool:
    address = value.address
    if address.version != network.address.version:
        return False
    return network.network(address, network.bits) == network.network(network.address, network.bits)


def _contains_ip_text(network: CIDRValue, text: str) -> Any:
    address = _address(text)
    return Failure("no such overload") if isinstance(address, str) else _contains_ip(network, IPValue(address))


def _contains_cidr(network: CIDRValue, other: CIDRValue) -> bool:
    return network.bits <= other.bits and _contains_ip(network, IPValue(other.address))


def _contains_cidr_text(network: CIDRValue, text: str) -> Any:
    other = _cidr(text)
    return other if isinstance(other, Failure) else _contains_cidr(network, other)


def _masked(network: CIDRValue) -> CIDRValue:
    rest = network.address.max_prefixlen - network.bits
    number = int(network.address) >> rest << rest
    kind = IPv4Address if network.address.version == 4 else IPv6Address
    return CIDRValue(kind(number), network.bits)


def _walk(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


def _walk_twice(arguments: Any, _: Any) -> int:
    product = size_of(arguments[0]) * 2 * 0.1
    return int(product) if product == int(product) else int(product) + 1


def _contains_ip_price(arguments: Any, _: Any) -> int:
    size = size_of(arguments[0])
    return tenth(size + size)


def _contains_ip_text_price(arguments: Any, _: Any) -> int:
    return _contains_ip_price(arguments, _) + tenth(size_of(arguments[1]))


def _contains_cidr_price(arguments: Any, _: Any) -> int:
    size = size_of(arguments[0])
    return tenth(size + size) + tenth(size) + 1


def _contains_cidr_text_price(arguments: Any, _: Any) -> int:
    return _contains_cidr_price(arguments, _) + tenth(size_of(arguments[1]))


IPS: Final = Library(
    name="ip",
    declarations="""
ip(string) -> net.IP    string_to_ip
net.CIDR.ip() -> net.IP    cidr_ip
ip.isCanonical(string) -> bool    ip_is_canonical
isIP(string) -> bool    is_ip
net.IP.family() -> int    ip_family
net.IP.isGlobalUnicast() -> bool    ip_is_global_unicast
net.IP.isLinkLocalMulticast() -> bool    ip_is_link_local_multicast
net.IP.isLinkLocalUnicast() -> bool    ip_is_link_local_unicast
net.IP.isLoopback() -> bool    ip_is_loopback
net.IP.isUnspecified() -> bool    ip_is_unspecified
string(net.IP) -> string    ip_to_string
cidr(string) -> net.CIDR    string_to_cidr
isCIDR(string) -> bool    is_cidr
net.CIDR.containsCIDR(string) -> bool    cidr_contains_cidr_string
net.CIDR.containsCIDR(net.CIDR) -> bool    cidr_contains_cidr
net.CIDR.containsIP(string) -> bool    cidr_contains_ip_string
net.CIDR.containsIP(net.IP) -> bool    cidr_contains_ip_ip
net.CIDR.masked() -> net.CIDR    cidr_masked
net.CIDR.prefixLength() -> int    cidr_prefix_length
string(net.CIDR) -> string    cidr_to_string
""",
    implementations={
        "string_to_ip": _ip,
        "cidr_ip": lambda network: IPValue(network.address),
        "ip_is_canonical": _is_canonical,
        "is_ip": lambda text: not isinstance(_address(text), str),
        "ip_family": lambda value: value.address.version,
        "ip_is_global_unicast": _is_global_unicast,
        "ip_is_link_local_multicast": _is_local_multicast,
        "ip_is_link_local_unicast": _is_local_unicast,
        "ip_is_loopback": lambda value: value.address.is_loopback,
        "ip_is_unspecified": lambda value: value.address.is_unspecified,
        "ip_to_string": IPValue.shown,
        "string_to_cidr": _cidr,
        "is_cidr": lambda text: not isinstance(_network(text), str),
        "cidr_contains_cidr_string": _contains_cidr_text,
        "cidr_contains_cidr": _contains_cidr,
        "cidr_contains_ip_string": _contains_ip_text,
        "cidr_contains_ip_ip": _contains_ip,
        "cidr_masked": _masked,
        "cidr_prefix_length": lambda network: network.bits,
        "cidr_to_string": CIDRValue.shown,
    },
    prices={
        "cidr_ip": 1,
        "cidr_contains_ip_string": _contains_ip_text_price,
        "cidr_contains_cidr_string": _contains_cidr_text_price,
    },
    function_prices={
        **dict.fromkeys(("cidr", "ip", "isIP", "isCIDR"), _walk),
        "ip.isCanonical": _walk_twice,
        "containsIP": _contains_ip_price,
        "containsCIDR": _contains_cidr_price,
    },
)
