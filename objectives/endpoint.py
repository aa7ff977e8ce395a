"""Where a served model answers, and the one error that talking to it can raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["connect", "tokenize", "request", "stream", "metrics"]
"""What was going on when an endpoint failed; `stream` is after the first byte of an answer."""


TIMEOUT_S = 600.0
"""Longest silence on a socket: a first token behind a compile or a long queue can take minutes."""


@dataclass(frozen=True)
class Endpoint:
    """A served model: `base_url` such as `http://127.0.0.1:8123`, without `/v1`, and its name.

    `timeout_s` is the longest silence on a socket before a request is given up.
    """

    base_url: str
    model: str
    api_key: str | None = None
    timeout_s: float = TIMEOUT_S

    def headers(self) -> dict[str, str]:
        """Request headers; the key is sent and shown nowhere else."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}


class EndpointError(Exception):
    """The endpoint did not answer as a server that works does.

    `status` is the HTTP status where one arrived. Why the server failed is the runner's to find
    out: its log and its exit code say more than the socket.
    """

    def __init__(self, phase: Phase, status: int | None, detail: str) -> None:
        self.phase: Phase = phase
        self.status = status
        self.detail = detail
        with_status = "" if status is None else f" with HTTP status {status}"
        super().__init__(f"The endpoint failed at {phase}{with_status}: {detail}")

    def __reduce__(self) -> tuple[type[EndpointError], tuple[Phase, int | None, str]]:
        return (EndpointError, (self.phase, self.status, self.detail))
