"""Where the page is served: the address that it binds to, and the names that it goes by."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from tidemill.errors import RequestError

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Address:
    """A bound address. Only requests that name it by one of its own names are answered.

    A page of an attacker may let its own name point to this machine (DNS rebinding), and the
    browser then sends requests here that seem to come from the same site. They carry that name.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The address as a browser takes it."""
        host = self.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        return f"http://{_bracketed(host)}:{self.port}"

    def knows(self, header: str) -> bool:
        """Whether a Host header names this server."""
        name, separator, port = header.rpartition(":")
        if not separator or not port.isdecimal() or int(port) != self.port:
            return False
        name = name.lower()
        if name in {*(_LOOPBACK if self.is_loopback else ()), _bracketed(self.host).lower()}:
            return True
        if self.is_loopback:
            return False
        own = {socket.gethostname().lower(), socket.getfqdn().lower()}
        return name in own or _is_ip(name)  # a number cannot be rebound: it is no name

    def listen(self) -> tuple[socket.socket, Address]:
        """A socket that listens, and its address; port 0 takes any that is free."""
        try:
            family, kind, _, _, place = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            made = socket.socket(family, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                made.bind(place)
                made.listen(128)
            except BaseException:
                made.close()
                raise
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RequestError(
                f"cannot listen on {self.host} port {self.port}: {reason}",
                fix="another server may have it: --port 0 takes any that is free",
            ) from None
        return made, Address(self.host, made.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and nobody else can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
