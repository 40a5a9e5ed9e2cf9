"""The certificate authority of one cluster, its server certificate, and the kubeconfig that trusts it.

Everything is made anew for each cluster directory and is worthless elsewhere. Keys are EC P-256, since RSA would take
longer to generate than the rest of the start. The work happens in a short-lived child process, in parallel with
everything else: the library costs ten megabytes that the cluster would otherwise keep for its whole life.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.files import replace_file

DAYS = 365
_RENEW_DAYS = 30
_HOSTS = ("127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")


@dataclass(frozen=True, slots=True)
class Pki:
    """Where the files of one cluster are: all in PEM."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.directory / "server.crt"

    @property
    def key(self) -> Path:
        return self.directory / "server.key"

    @property
    def token_key(self) -> Path:
        return self.directory / "token.key"

    def complete(self) -> bool:
        """Whether all files are there and young enough."""
        files = (self.authority, self.certificate, self.key, self.token_key)
        if not all(path.exists() for path in files):
            return False
        age = datetime.now(UTC).timestamp() - self.certificate.stat().st_mtime
        return age < timedelta(days=DAYS - _RENEW_DAYS).total_seconds()


class Preparation:
    """Certificates on their way; `wait` returns when they are there."""

    def __init__(self, pki: Pki, process: subprocess.Popen[bytes] | None) -> None:
        self._pki = pki
        self._process = process

    def wait(self) -> Pki:
        """Raises `DrakkarError` if they could not be made."""
        if self._process is not None:
            _, errors = self._process.communicate()
            if self._process.returncode:
                text = errors.decode(errors="replace").strip().rpartition("\n")[2]
                raise DrakkarError(f"cannot create certificates: {text}", subject=str(self._pki.directory))
            self._process = None
        return self._pki


def prepare(directory: Path) -> Preparation:
    """Begin to make CA and server certificate in `directory`, or find those of an earlier run there.

    Raises `DrakkarError` if the directory cannot be used.
    """
    pki = Pki(directory)
    try:
        if pki.complete():
            return Preparation(pki, None)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DrakkarError(
            f"cannot keep certificates there: {error.strerror}",
            reason="UnusableDirectory",
            subject=str(directory),
            expected="a directory that this user may write",
            next_step="choose another --data directory",
        ) from error
    command = [sys.executable, "-c", f"from drakkar.cluster import pki; pki.create({str(directory)!r})"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return Preparation(pki, process)


def create(directory: str) -> None:
    """Make all files now, in this process (which loads the cryptography library)."""
    import ipaddress
    import os

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    pki = Pki(Path(directory))
    start = datetime.now(UTC) - timedelta(minutes=5)
    end = start + timedelta(days=DAYS)

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def builder(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("drakkar-ca"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )

    def usage(*, sign: bool) -> x509.KeyUsage:
        off = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False) | {
            "encipher_only": False,
            "decipher_only": False,
        }
        return x509.KeyUsage(digital_signature=True, key_cert_sign=sign, crl_sign=sign, **off)

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_public = authority_key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_public)
    authority = (
        builder("drakkar-ca", authority_public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(usage(sign=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    addresses = {"127.0.0.1", "::1", "10.96.0.1"}
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(host)) if host in addresses else x509.DNSName(host) for host in _HOSTS
    ]
    server = (
        builder("drakkar-apiserver", server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(usage(sign=False), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    secret = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(pki.key, secret, mode=0o600)
    replace_file(pki.token_key, os.urandom(32), mode=0o600)
    replace_file(pki.authority, authority.public_bytes(serialization.Encoding.PEM))
    replace_file(pki.certificate, server.public_bytes(serialization.Encoding.PEM))


def kubeconfig(url: str, authority: Path, token: str, *, name: str = "drakkar", namespace: str = "") -> str:
    """A kubeconfig (YAML) with the CA and a bearer token inside."""
    data = base64.b64encode(authority.read_bytes()).decode()
    context = f"    cluster: {name}\n    user: {name}-admin\n" + (f"    namespace: {namespace}\n" if namespace else "")
    return (
        "apiVersion: v1\nkind: Config\nclusters:\n"
        f"- name: {name}\n  cluster:\n    server: {url}\n    certificate-authority-data: {data}\n"
        f"users:\n- name: {name}-admin\n  user:\n    token: {token}\n"
        f"contexts:\n- name: {name}\n  context:\n{context}"
        f"current-context: {name}\n"
    )
