"""Trials that MLflow has not heard of yet, kept on the disk until it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tuner.ledger import TrialRecord


class Parcel(BaseModel):
    """One trial to be sent: its record, the control's where it has one, and its evidence's folder.

    `directory` is relative to the study's folder where it lies inside: a study can be moved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    record: TrialRecord
    control: TrialRecord | None
    directory: str


class Outbox:
    """A folder with one file per parcel; a file is whole or absent, and gone once it is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, parcel: Parcel) -> Path:
        """Keep `parcel`; the same attempt put twice is one parcel, with the later content."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number, attempt = parcel.record.key
        path = self.folder / f"{number:06d}-{attempt}.json"
        draft = path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            file.write(parcel.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        return path

    def __iter__(self) -> Iterator[Path]:
        """The files of the parcels, in the order of the trials."""
        return iter(sorted(self.folder.glob("*.json")))

    def open(self, path: Path) -> Parcel:
        """The parcel in a file. Raises ValueError if it holds none, OSError if it is unreadable."""
        return Parcel.model_validate_json(path.read_bytes())

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("*.json"))
