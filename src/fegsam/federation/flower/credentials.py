"""Credentials: a certificate authority, the server's certificate, and one key pair per node.

The authority signs the server's certificate, so that nodes can identify the server. The server has
the nodes' public keys, so that it can identify them. Only their owner can read private keys, and no
existing file is overwritten.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from fegsam.federation.errors import FederationError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise FederationError(
        "Credentials need the package cryptography; run: pip install 'fegsam[flower]'"
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


def make_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Create the certificate authority of one federation: `ca.pem` and `ca.key` in `directory`."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fegsam federation authority")])
    certificate = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_new(directory / "ca.pem", certificate.public_bytes(Encoding.PEM))
    write_new(directory / "ca.key", _private(key, PrivateFormat.PKCS8))
    return certificate, key


def make_server(
    directory: Path,
    hosts: Sequence[str],
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
) -> None:
    """Create the certificate of a server: `server.pem`, `server.key`, `ca.pem`.

    It is valid for the names `hosts` and on the server's own machine.
    """
    issuer, signer = authority
    key = ec.generate_private_key(ec.SECP384R1())
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    certificate = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fegsam server")]),
            issuer.subject,
            key.public_key(),
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA384())
    )
    write_new(directory / "server.pem", certificate.public_bytes(Encoding.PEM))
    write_new(directory / "server.key", _private(key, PrivateFormat.PKCS8))
    write_new(directory / "ca.pem", issuer.public_bytes(Encoding.PEM))


def make_node(private: Path, public: Path) -> None:
    """Create the key pair of one node, in the format that Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_new(private, _private(key, PrivateFormat.OpenSSH))
    write_new(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")


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


def _private(key: ec.EllipticCurvePrivateKey, layout: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, layout, NoEncryption())
