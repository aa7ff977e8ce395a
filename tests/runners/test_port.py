"""A port is ours from its choice to the engine's end."""

from __future__ import annotations

import os
import socket

from runners.port import PortHold, is_free, listeners


def server_on(port: int, *, reuse: bool) -> socket.socket:
    server = socket.socket()
    if reuse:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_server_can_listen_on_a_port_that_is_held() -> None:
    with PortHold() as hold, server_on(hold.port, reuse=True):
        with socket.create_connection(("127.0.0.1", hold.port), 1):
            pass
        assert listeners(hold.port) == {os.getpid()}


def test_nobody_is_given_a_held_port_as_a_free_one() -> None:
    with PortHold() as hold:
        given = set()
        for _ in range(2000):
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", 0))
                given.add(other.getsockname()[1])
        assert hold.port not in given


def test_a_port_is_free_only_when_nobody_listens() -> None:
    with PortHold() as hold:
        port = hold.port
    assert is_free(port)
    with server_on(port, reuse=True):
        assert not is_free(port)
    assert is_free(port)


def test_nobody_listens_on_a_held_port() -> None:
    with PortHold() as hold:
        assert listeners(hold.port) == set()
