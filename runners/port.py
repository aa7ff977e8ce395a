"""A port of our own: reserved before the engine starts, and proven to be its own afterwards."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

LISTEN = "0A"


class PortHold:
    """Keeps a port from everybody who asks the kernel for a free one, while the engine takes it.

    The hold is bound but does not listen, with SO_REUSEADDR. Linux then lets another socket that
    also sets SO_REUSEADDR (vLLM, uvicorn and Python's servers do) bind and listen on the port,
    and never hands it out as a free port. An engine that sets no SO_REUSEADDR fails with `Address
    already in use`; for that one `close` the hold first and live with the short race.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Gives the port back; again is no error."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a new server could listen there now; connections in TIME_WAIT do not count."""
    try:
        with PortHold(host, port) as hold:
            hold._socket.listen(1)
    except OSError:
        return False
    return True


def listeners(port: int) -> set[int]:
    """The pids of all processes that listen on this TCP port, as far as we may see them."""
    inodes = _listening_inodes(port)
    if not inodes:
        return set()
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for link in (process / "fd").iterdir():
                target = str(link.readlink())
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    found.add(int(process.name))
                    break
        except OSError:
            continue
    return found


def _listening_inodes(port: int) -> set[str]:
    wanted = f"{port:04X}"
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and fields[1].rpartition(":")[2] == wanted:
                inodes.add(fields[9])
    return inodes
