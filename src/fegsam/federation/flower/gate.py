"""The gate of a federation: the only port that other machines reach, for the calls of nodes alone.

Flower's SuperLink serves nodes and operators on one port, and does not authenticate operators:
anyone who reaches that port may register keys and submit code, which then runs on the server and on
every node. The SuperLink therefore listens only on the loopback address, and this gate forwards the
calls of nodes (which are signed with the nodes' keys) and nothing else. It writes each request
again for the SuperLink, which thus sees exactly what the gate read. Refused calls are logged.
"""

from __future__ import annotations

import base64
import functools
import http.client
import socket
import socketserver
import ssl
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

from fegsam.federation.credentials import Tls
from fegsam.federation.errors import FederationError
from fegsam.federation.strangers import log_stranger

NODE_CALLS = frozenset(
    f"/v1/fleet/{call}"
    for call in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
SELF_REGISTRATION = frozenset({"/v1/fleet/register-node", "/v1/fleet/unregister-node"})
"""Calls of nodes without keys, allowed only in a federation without TLS and keys."""

MAX_BODY = 1 << 28
"""Largest body in bytes; 3 * 10^7 parameters fit."""

_HANDSHAKE, _IDLE, _ANSWER = 20.0, 120.0, 120.0
"""Seconds for the TLS handshake, between two requests, and for the SuperLink's answer."""

_KEY, _TIMESTAMP, _TIMESTAMP_LIFE = "flwr-public-key", "flwr-timestamp", 320.0
"""Headers of a node's key and of the timestamp that it signed, and a timestamp's life in seconds.

The SuperLink refuses older timestamps.
"""

_MAX_CONNECTIONS = 4096

_PASSED_ON = ("content-type", "accept")
"""Headers that are forwarded, besides all that begin with `flwr-`."""


class Gate:
    """``with Gate(...) as gate:`` serves on its own threads until the block ends.

    Parameters
    ----------
    host, port : the address that nodes connect to; port 0 takes a free port, see `port`
    upstream : (host, port) of the SuperLink
    tls : Tls, or None for plain text
    log : file that receives one line of JSON per refusal
    """

    def __init__(
        self, host: str, port: int, upstream: tuple[str, int], tls: Tls | None, log: Path
    ) -> None:
        try:
            self._server = _GateServer((host, port), upstream, tls, log)
        except OSError as error:
            raise FederationError(
                f"the gate cannot listen on {host}:{port} ({error.strerror}): choose another "
                "address, or end the process that uses it."
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="gate", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def __enter__(self) -> Gate:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _UsedTimestamps:
    """Accepted timestamps by key, to detect replays: nodes sign each call with a new timestamp.

    We store timestamps, not signatures: ECDSA signatures are malleable.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[bytes, str], float] = {}
        self._lock = threading.Lock()

    def add(self, signed: tuple[bytes, str]) -> None:
        now = time.monotonic()
        with self._lock:
            while self._until and next(iter(self._until.values())) < now:
                del self._until[next(iter(self._until))]
            self._until[signed] = now + _TIMESTAMP_LIFE

    def __contains__(self, signed: tuple[bytes, str]) -> bool:
        return signed in self._until


class _GateServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], upstream: tuple[str, int], tls: Tls | None, log: Path
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.refused = functools.partial(log_stranger, log)
        self.used = _UsedTimestamps()
        self.upstream = upstream
        self.allowed = NODE_CALLS if tls else NODE_CALLS | SELF_REGISTRATION
        self.context: ssl.SSLContext | None = None
        self.trust: ssl.SSLContext | None = None
        self.places = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        if tls is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.minimum_version = ssl.TLSVersion.TLSv1_2
            self.context.load_cert_chain(tls.certificate, tls.key)
            self.trust = ssl.create_default_context(cafile=tls.authority)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Do the handshake on the connection's own thread, where it delays no other connection."""
        peer = str(client_address[0])
        if not self.places.acquire(blocking=False):
            self.refused(peer, "too many connections")
            self.shutdown_request(request)
            return
        try:
            if (opened := self._secured(request, peer)) is not None:
                super().process_request_thread(opened, client_address)
        finally:
            self.places.release()

    def _secured(self, request: socket.socket, peer: str) -> socket.socket | None:
        request.settimeout(_HANDSHAKE)
        if self.context is None:
            return request
        try:
            return self.context.wrap_socket(request, server_side=True)
        except (OSError, ValueError) as error:
            self.refused(
                peer,
                "no TLS handshake",
                detail=getattr(error, "reason", None) or type(error).__name__,
            )
            self.shutdown_request(request)
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection; the others continue."""
        self.refused(str(client_address[0]), "broken connection")


class _Handler(BaseHTTPRequestHandler):
    """One connection of a node, with its requests in turn."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    _upstream: http.client.HTTPConnection | None = None

    @property
    def _gate(self) -> _GateServer:
        return cast(_GateServer, self.server)

    def do_POST(self) -> None:
        if (length := self._body_length()) is None or (headers := self._passed_on()) is None:
            return
        signed = _signed(headers)
        if signed in self._gate.used:
            self._turn_away(HTTPStatus.CONFLICT, "a call that was made before")
            return
        answer = self._ask_superlink(headers, self.rfile.read(length))
        if answer is None:
            self._reply(HTTPStatus.BAD_GATEWAY, "text/plain", b"")
            return
        status, kind, content = answer
        if status >= HTTPStatus.BAD_REQUEST:
            self._log_refusal(
                f"the SuperLink refused the call ({status})",
                detail=content[:300].decode("utf-8", "replace"),
            )
        else:
            self._gate.used.add(signed)
        self._reply(status, kind, content)

    def _reply(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def _body_length(self) -> int | None:
        """The length of the body; None if the request was refused."""
        if self.path not in self._gate.allowed:
            # Not 403: Flower's nodes take that for the end of a run, and keep running.
            self._turn_away(HTTPStatus.NOT_FOUND, "not a call of nodes")
            return None
        stated = self.headers.get_all("Content-Length", [])
        if (
            "Transfer-Encoding" in self.headers
            or len(stated) != 1
            or not (stated[0].isascii() and stated[0].isdigit())
        ):
            self._turn_away(HTTPStatus.LENGTH_REQUIRED, "no length")
            return None
        if len(stated[0]) > 12 or int(stated[0]) > MAX_BODY:
            self._turn_away(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long")
            return None
        return int(stated[0])

    def _passed_on(self) -> dict[str, str] | None:
        """The headers to forward, each once; None if the request was refused."""
        named = [(name.lower(), value) for name, value in self.headers.items()]
        kept = [
            (name, value) for name, value in named if name in _PASSED_ON or name.startswith("flwr-")
        ]
        if len(dict(kept)) < len(kept):
            self._turn_away(HTTPStatus.BAD_REQUEST, "a header that is there twice")
            return None
        return dict(kept)

    def _ask_superlink(self, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes] | None:
        # A connection that the SuperLink closed while idle fails only when it is used; then we
        # retry once on a new one. Calls that were answered are never sent again.
        for _ in range(2):
            fresh = self._upstream is None
            try:
                connection = self._upstream = self._upstream or self._connection()
                connection.request("POST", self.path, body=body, headers=headers)
                response = connection.getresponse()
                return (
                    response.status,
                    response.headers.get("Content-Type", "application/octet-stream"),
                    response.read(),
                )
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError):
                self._forget_connection()
                if fresh:
                    return None
            except (OSError, http.client.HTTPException):
                self._forget_connection()
                return None
        return None

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._gate.upstream
        if self._gate.trust is None:
            return http.client.HTTPConnection(host, port, timeout=_ANSWER)
        return http.client.HTTPSConnection(host, port, timeout=_ANSWER, context=self._gate.trust)

    def _forget_connection(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def _turn_away(self, status: HTTPStatus, reason: str) -> None:
        self._log_refusal(reason)
        self.close_connection = True
        super().send_error(status, reason)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse whatever is not HTTP, or uses another method than POST."""
        self._log_refusal(message or HTTPStatus(code).phrase)
        self.close_connection = True
        super().send_error(code, message, explain)

    def _log_refusal(self, reason: str, **details: Any) -> None:
        self._gate.refused(
            str(self.client_address[0]), reason, call=getattr(self, "path", ""), **details
        )

    def version_string(self) -> str:
        return "fegsam"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing here: the SuperLink logs every call, and this log is for refusals."""


def _signed(headers: dict[str, str]) -> tuple[bytes, str]:
    """The key and the timestamp that it signed; the SuperLink refuses what cannot be decoded."""
    try:
        return base64.b64decode(headers.get(_KEY, "")), headers.get(_TIMESTAMP, "")
    except ValueError:
        return b"", ""
