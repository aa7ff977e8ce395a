"""Finding documents: a name from our catalog, or a file in the user's folder."""

from __future__ import annotations

from pathlib import Path

import objectives
import runners
import search_spaces
from tuner.document import DocumentError, Problem, nearest

SHELVES: dict[str, Path] = {
    "space": Path(search_spaces.__file__).parent / "catalog",
    "objective": Path(objectives.__file__).parent / "catalog",
    "runner": Path(runners.__file__).parent / "catalog",
}
"""The folder of each kind of document."""

NOT_DOCUMENTS = {"signatures"}
"""Files of the runners' shelf that are data of another kind."""


def names(kind: str) -> list[str]:
    """What the catalog offers of a kind ("space", "objective" or "runner"), sorted."""
    return sorted(
        path.stem for path in SHELVES[kind].glob("*.yaml") if path.stem not in NOT_DOCUMENTS
    )


def find(kind: str, name: str, folder: Path) -> Path:
    """The file that `name` means: a path from `folder`, a file in it, or an entry of the catalog.

    Raises DocumentError, with the nearest names, if there is none.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = folder / Path(name).expanduser()
        if path.is_file():
            return path
        reason = f"this {kind} file does not exist; check the path in the study."
        raise DocumentError([Problem(path, reason)])
    beside = folder / f"{name}.yaml"
    shelved = SHELVES[kind] / f"{name}.yaml"
    for path in (beside, shelved):
        if path.is_file():
            return path
    raise DocumentError(
        [
            Problem(
                folder,
                f"no {kind} is called '{name}', neither here nor in the catalog"
                f"{nearest(name, names(kind))}",
            )
        ]
    )
