"""POST over HTTP with a deadline for the whole exchange, and a way to let go of it from another thread. Standard library only."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from vtgrl.core.errors import ConfigError
from vtgrl.data.caption.pace import Stopped

CONNECT_S = 10.0
"""Longest wait for a connection."""
MOST_BYTES = 16 << 20
"""Longest answer that is read."""


@dataclass(frozen=True)
class Reply:
    """A whole HTTP answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class NoReply(Exception):
    """No whole HTTP answer came; the text says why."""


class Poster:
    """Sends JSON to one address, from any number of threads. Redirects are not followed: they would take the key elsewhere."""

    def __init__(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> None:
        """timeout_s: from the connection to the last byte.

        Raises:
            ConfigError: not an http or https address.
        """
        self._url = check_url(url)
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._lock = threading.Lock()
        self._open: set[_Exchange] = set()
        self._closed = False

    def post(self, body: bytes) -> Reply:
        """Send and read the answer, whatever its status.

        Raises:
            NoReply: no connection, reset, too slow, cut off, or too long.
            Stopped: `close` was called.
            ConfigError: the server's certificate is not valid.
        """
        exchange = _Exchange(self._connection())
        with self._lock:
            if self._closed:
                raise Stopped
            self._open.add(exchange)
        deadline = threading.Timer(self._timeout_s, exchange.cut, (f"no whole answer within {self._timeout_s:g} s",))
        deadline.daemon = True
        deadline.start()
        try:
            return exchange.run(self._target(), body, self._all_headers(), timeout_s=self._timeout_s)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(f"{self._url.netloc}: certificate refused ({error.verify_message}); set SSL_CERT_FILE to yours") from error
        except (OSError, http.client.HTTPException) as error:
            if self._closed:
                raise Stopped from error
            raise NoReply(exchange.why or _why(error)) from error
        finally:
            deadline.cancel()
            exchange.end()
            with self._lock:
                self._open.discard(exchange)

    def close(self) -> None:
        """Let go of all exchanges; their threads raise Stopped."""
        with self._lock:
            self._closed = True
            for exchange in self._open:
                exchange.cut("stopped")

    # A proxy from the environment (http_proxy, https_proxy, no_proxy), as everything else on the machine uses it.

    def _proxy(self) -> SplitResult | None:
        host = self._url.hostname or ""
        address = getproxies().get(self._url.scheme)
        return None if not address or is_loopback(host) or proxy_bypass(host) else urlsplit(address)

    def _connection(self) -> http.client.HTTPConnection:
        proxy = self._proxy()
        near = proxy or self._url
        timeout = min(CONNECT_S, self._timeout_s)
        host = near.hostname or ""
        if self._tls is None:
            return http.client.HTTPConnection(host, near.port or 80, timeout=timeout)
        connection = http.client.HTTPSConnection(host, near.port or (80 if proxy else 443), timeout=timeout, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(self._url.hostname or "", self._url.port or 443, headers=_proxy_login(proxy))
        return connection

    def _target(self) -> str:
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        plain_proxy = self._tls is None and self._proxy() is not None
        return f"http://{self._url.netloc}{path}" if plain_proxy else path

    def _all_headers(self) -> dict[str, str]:
        proxy = self._proxy() if self._tls is None else None
        return {**self._headers, **(_proxy_login(proxy) if proxy else {})}


class _Exchange:
    """One connection, one request, one answer."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._sock: socket.socket | None = None
        self.why = ""

    def run(self, target: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> Reply:
        self._connection.connect()
        self._sock = self._connection.sock  # `getresponse` may take it out of the connection
        self._sock.settimeout(timeout_s)
        if self.why:
            raise ConnectionAbortedError(self.why)
        self._connection.request("POST", target, body, dict(headers))
        response = self._connection.getresponse()
        data = response.read(MOST_BYTES)
        if response.length or (response.length is None and not response.isclosed() and response.read(1)):
            raise http.client.IncompleteRead(data)
        if self.why:  # an answer without a stated length ends where the connection does: here, by our own hand
            raise http.client.IncompleteRead(data)
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, data)

    def cut(self, why: str) -> None:
        """From another thread: whoever reads or writes gets an error or an end."""
        self.why = self.why or why
        sock = self._sock or self._connection.sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return  # not connected any more

    def end(self) -> None:
        self._connection.close()


def check_url(url: str) -> SplitResult:
    """The parts of an http or https address without login.

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("--openai-base-url: write http://HOST:PORT/v1 or https://HOST/v1")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("--openai-base-url holds a login: put the key into an environment variable (--api-key-env NAME)")
    return parts


def is_loopback(host: str) -> bool:
    """This machine by name."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": "Basic " + base64.b64encode(login).decode("ascii")}


def _why(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return f"the answer was cut off after {len(error.partial)} bytes"
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
