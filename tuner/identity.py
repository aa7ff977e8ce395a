"""Identity: everything that decides a result, as canonical JSON and its SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

Value = bool | int | float | str | None

ABSENT = "(unset)"


def canonical_json(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal data gives equal text, whatever the key order.

    Raises ValueError for NaN and infinities, which have no JSON form.
    """
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(data: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of `data`."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


class Identity(BaseModel):
    """What was measured, whole: two results may be compared only if what differs here is known.

    `configuration` holds `args` and `env` as the engine receives them (without port and host, which
    decide nothing, and without what the harness adds to observe). The other parts are facts about
    the engine (version, hashes of its binaries), the model's files, the devices and the workload.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    configuration: dict[str, dict[str, Any]]
    engine: dict[str, Any]
    model: dict[str, Any]
    topology: dict[str, Any]
    workload: dict[str, Any]

    @property
    def sha(self) -> str:
        """SHA-256 of the canonical JSON; the name of this identity everywhere."""
        return sha256_of(self.model_dump(mode="json"))

    def diff(self, other: Identity) -> dict[str, tuple[Any, Any]]:
        """Every leaf that differs, by dotted path: `{path: (self's value, other's value)}`."""
        mine = _leaves(self.model_dump(mode="json"))
        theirs = _leaves(other.model_dump(mode="json"))
        return {
            path: (mine.get(path, ABSENT), theirs.get(path, ABSENT))
            for path in sorted(mine.keys() | theirs.keys())
            if mine.get(path, ABSENT) != theirs.get(path, ABSENT)
        }


def lane_of(identity: Identity, quality_bar: Mapping[str, Any]) -> str:
    """SHA-256 of what must be equal for two identities to be compared at all.

    Model files, hardware, workload and quality bar; not the configuration, and not the engine's
    version, which is one of the things that a lane compares.
    """
    return sha256_of(
        {
            "model": identity.model,
            "topology": identity.topology,
            "workload": identity.workload,
            "quality_bar": dict(quality_bar),
        }
    )


def _leaves(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, dict) and data:
        found: dict[str, Any] = {}
        for key, value in data.items():
            found |= _leaves(value, f"{path}.{key}" if path else str(key))
        return found
    return {path: data}
