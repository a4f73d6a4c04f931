"""Ports for what listens later: nobody else may take one in the seconds until it is used."""

import socket
from pathlib import Path

import pytest

from e1_trl.ports import free_port

CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not CLIENTS.exists(), reason="only Linux says which ports it gives to clients")
def test_port_is_free_and_outside_of_the_range_of_clients() -> None:
    first, last = map(int, CLIENTS.read_text().split())
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) > 1 and not any(first <= port <= last for port in ports)
    with socket.socket() as mine:
        mine.bind(("", ports[0]))
