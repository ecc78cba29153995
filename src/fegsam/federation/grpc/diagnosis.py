"""Why a node cannot connect, in one sentence: gRPC itself only says that it cannot."""

from __future__ import annotations

import datetime
import socket
import ssl

from fegsam.federation.credentials import Tls

_PATIENCE = 5.0
_EXPIRED, _NOT_YET, _PURPOSE = 10, 9, 26
_FOREIGN = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
"""Codes of OpenSSL for what is wrong with a certificate."""


def diagnose(host: str, port: int, tls: Tls | None) -> str:
    """Connect once with Python's own TLS, and say what is wrong."""
    where = f"{host}:{port}"
    try:
        connection = socket.create_connection((host, port), timeout=_PATIENCE)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        return f"the server {where} cannot be reached ({reason})"
    with connection:
        if tls is None:
            return f"the server {where} does not answer; if it uses TLS, this node must, too"
        context = ssl.create_default_context(cafile=str(tls.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(tls.certificate, tls.key)
        context.set_alpn_protocols(["h2"])
        try:
            with context.wrap_socket(connection, server_hostname=host) as secured:
                if secured.recv(1):
                    return f"the server {where} answers now"
        except ssl.SSLCertVerificationError as error:
            return _server_certificate(where, error)
        except ssl.SSLError as error:
            reason = (error.reason or type(error).__name__).replace("_", " ").lower()
            if "wrong version" in reason or "http request" in reason:
                return f"the server {where} does not speak TLS"
            return f"the TLS handshake with the server {where} failed ({reason})"
        except OSError as error:
            return f"the server {where} ended the connection ({error.strerror or error})"
    return (
        f"the server {where} refuses this node's certificate: another authority signed it, or it "
        "is not valid by the server's clock"
    )


def _server_certificate(where: str, error: ssl.SSLCertVerificationError) -> str:
    clock = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    code = error.verify_code
    if code == _EXPIRED:
        return (
            f"the certificate of the server {where} has expired by this machine's clock ({clock}): "
            "set the clock, or run fegsam federate renew"
        )
    if code == _NOT_YET:
        return (
            f"the certificate of the server {where} is not yet valid by this machine's clock "
            f"({clock}): set the clock"
        )
    if code in _FOREIGN:
        return f"the server {where} is not of this federation: another authority signed for it"
    if code in _OTHER_NAME:
        return (
            f"the certificate of the server {where} is for other names: give that name to "
            "fegsam federate init as a --host"
        )
    if code == _PURPOSE:
        return f"{where} shows a certificate that is not a server's"
    return f"the certificate of the server {where} is not valid ({error.verify_message})"
