"""Credentials: a certificate authority, the server's certificate, and one key pair per node.

The authority signs the certificates of the server and of the nodes. The server also has the nodes'
public keys: it admits a node whose certificate is valid and whose key is among them. A server's
certificate is for servers only and a node's for clients only, so that no node can pose as the
server. Only their owner can read private keys, and no existing key is overwritten.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fegsam.federation.errors import FederationError
from fegsam.safe_files import read_plain, whole

try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_ssh_public_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise FederationError(
        "Credentials need the package cryptography; run: pip install 'fegsam[federation]'"
    ) from error

LOOPBACK = ("localhost", "127.0.0.1")
"""Names by which the server's own processes reach it."""

_VALID = datetime.timedelta(days=825)
"""The longest validity of a server certificate that all TLS libraries accept."""


def private_directory(path: Path) -> Path:
    """Create `path` if it is missing, and let only its owner enter it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_new(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, even while it is being written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FederationError(
            f"{path} already exists, and credentials are never overwritten: choose another "
            "directory."
        ) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


@dataclass(frozen=True)
class Tls:
    """The authority's certificate, and one's own certificate and key."""

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """The three files as PEM; a key that others can read, or a certificate that is not valid
        now, is refused."""
        key, mode = _content(self.key), self.key.stat().st_mode & 0o777
        if mode & 0o077:
            raise FederationError(
                f"the key {self.key} can be read by other users (mode {mode:o}): make a new one if "
                f"they may have read it, and run chmod 600 {self.key}."
            )
        certificate = _content(self.certificate)
        check_dates(_loaded(certificate, self.certificate), str(self.certificate))
        return _content(self.authority), certificate, key


def make_authority(directory: Path) -> Authority:
    """Create the certificate authority of one federation: `ca.pem` and `ca.key` in `directory`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fegsam federation authority")])
    certificate = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_new(directory / "ca.pem", certificate.public_bytes(Encoding.PEM))
    write_new(directory / "ca.key", _private(key))
    return certificate, key


def load_authority(directory: Path) -> Authority:
    """The authority that `make_authority` wrote."""
    path = directory / "ca.pem"
    return _loaded(_content(path), path), load_key(directory / "ca.key")


def make_server(directory: Path, hosts: Sequence[str], authority: Authority) -> None:
    """Create the certificate of a server: `server.pem`, `server.key`, `ca.pem`.

    It is valid for the names `hosts` and on the server's own machine.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    certify(directory / "server.pem", key, authority, names=x509.SubjectAlternativeName(names))
    write_new(directory / "server.key", _private(key))
    write_new(directory / "ca.pem", authority[0].public_bytes(Encoding.PEM))


def make_node(directory: Path, public: Path, authority: Authority) -> None:
    """Create the key and certificate of one node: `node.key` and `node.pem`, and its public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_new(directory / "node.key", _private(key))
    write_new(public, _public(key))
    certify(directory / "node.pem", key, authority)


def make_flower_key(private: Path, public: Path) -> None:
    """Create the key pair of one node, in the format that Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_new(private, _private(key, PrivateFormat.OpenSSH))
    write_new(public, _public(key))


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A private key that was written here."""
    content = _content(path)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FederationError(f"{path} is not a private key of a federation: restore it.")
    return key


def load_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM file."""
    return _loaded(_content(path), path)


def key_id(certificate: bytes) -> str:
    """The SHA-256 of the public key of a certificate in PEM, in hexadecimal digits."""
    return _id_of(x509.load_pem_x509_certificate(certificate).public_key())


def listed_key(path: Path) -> str:
    """The SHA-256 of the public key in a file `nodes/NAME.pub`, in hexadecimal digits."""
    content = _content(path)
    try:
        return _id_of(load_ssh_public_key(content))
    except (ValueError, UnsupportedAlgorithm):
        raise FederationError(
            f"{path} is not a public key: restore it, or delete it to keep its node out."
        ) from None


def check_dates(certificate: x509.Certificate, what: str) -> None:
    """Refuse a certificate that is not valid now, and name this machine's clock."""
    now = datetime.datetime.now(datetime.UTC)
    clock = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    if now > certificate.not_valid_after_utc:
        raise FederationError(
            f"the certificate {what} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} "
            f"UTC, and {clock}: run fegsam federate renew, or set the clock."
        )
    if now < certificate.not_valid_before_utc:
        raise FederationError(
            f"the certificate {what} is valid from "
            f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and {clock}: set the clock."
        )


def _id_of(key: object) -> str:
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # pyright: ignore
    return hashlib.sha256(spki).hexdigest()


def _loaded(content: bytes, path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise FederationError(f"{path} is not a certificate: restore it.") from None


def _content(path: Path) -> bytes:
    try:
        return read_plain(path, 1 << 20)
    except OSError as error:
        raise FederationError(
            f"{path} cannot be read ({error.strerror}): restore it, and let only its owner read it."
        ) from None


def certify(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    authority: Authority,
    *,
    names: x509.SubjectAlternativeName | None = None,
) -> None:
    """Write a certificate in place of an older one: for a server with `names`, else for a node."""
    issuer, signer = authority
    subject = path.parent.name if names is None else "fegsam server"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
    builder = _certificate(name, issuer.subject, key.public_key())
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    if names is not None:
        builder = builder.add_extension(names, critical=False)
        usage = ExtendedKeyUsageOID.SERVER_AUTH
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    with whole(path) as temporary:
        write_new(temporary, certificate.public_bytes(Encoding.PEM))


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # The clocks of other machines may be slow.
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(now + _VALID)
    )


def _usage(**granted: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: granted.get(name, False) for name in names})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise FederationError(
            f"the host {host!r} is not a name or address: give the one that nodes use, in ASCII."
        ) from None


def _private(key: ec.EllipticCurvePrivateKey, layout: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, layout, NoEncryption())


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
