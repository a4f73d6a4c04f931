"""Ports for servers that start later."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free port below those that the system gives to clients, as a minute may pass until it is used."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port := 20_000 + secrets.randbelow(12_000)))
            return port
