"""New certificates for a federation's machines, and an end to the keys of some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from fegsam.federation.credentials import certify, load_authority, load_certificate, load_key
from fegsam.federation.errors import FederationError


def renew(directory: Path) -> list[Path]:
    """Write new certificates for all keys of the directory that `init` wrote; return their files.

    Keys stay as they are, so machines with an older certificate work until it expires.
    """
    authority = load_authority(directory / "authority")
    server = directory / "server"
    old = load_certificate(server / "server.pem")
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    certify(server / "server.pem", load_key(server / "server.key"), authority, names=names)
    written = [server / "server.pem"]
    for node in sorted((directory / "nodes").iterdir()):
        if (node / "node.pem").exists():  # with Flower, nodes have keys alone
            certify(node / "node.pem", load_key(node / "node.key"), authority)
            written.append(node / "node.pem")
    return written


def revoke(server: Path, nodes: Sequence[str]) -> None:
    """Delete the public keys of nodes from a server's directory; a running server cuts them off."""
    listed = {path.stem: path for path in sorted((server / "nodes").glob("*.pub"))}
    for node in nodes:
        if node not in listed:
            known = ", ".join(listed) or "none"
            raise FederationError(f"{server} has no key of {node!r}; it has those of: {known}.")
    for node in nodes:
        listed[node].unlink()
