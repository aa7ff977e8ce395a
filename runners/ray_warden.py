"""Ends a local Ray when the process that started it is gone, in whatever way.

Run as a script, standard library only: `ray_warden.py NAME=VALUE`. It waits until its stdin closes,
and then kills every process that was started with that variable in its environment.

Ray's own processes ask the kernel to be ended with their parent, but its two agents (dashboard and
runtime environments) are the raylet's children and notice its death only by looking for it: they
were alive a minute after a driver was killed (measured with Ray 2.60).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

GRACE_S = 1.0
"""For Ray's processes to end by themselves, which writes their last lines of log."""
GIVE_UP_S = 10.0


def carriers(variable: bytes) -> list[int]:
    """Every living process with this variable in the environment that it was started with."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if variable in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def main(variable: bytes) -> None:
    """Waits for the end of stdin, then ends the carriers."""
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    time.sleep(GRACE_S)
    until = time.monotonic() + GIVE_UP_S
    while (left := carriers(variable)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1].encode())
