"""What tells two studies of one name apart, in a database or on a server that both of them use."""

from __future__ import annotations

import secrets
from pathlib import Path


def study_id(folder: Path) -> str:
    """The study's own id: eight hexadecimal digits, written into its folder once.

    A file, since the folder may be moved and hosts may be named alike. Raises OSError.
    """
    path = folder / "id"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="ascii") as file:
            file.write(secrets.token_hex(4))
    except FileExistsError:
        pass
    return path.read_text(encoding="ascii").strip()
