"""Ports for what listens later."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free port that the system gives to no client before it is used, which may take a minute."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port := 20_000 + secrets.randbelow(12_000)))
            return port
