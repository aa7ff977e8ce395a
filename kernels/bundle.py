"""The worker as one file: a zip of this package that any Python with torch can run."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

ENTRY = "from kernels.worker import serve\n\nserve()\n"
PACKAGE = Path(__file__).resolve().parent
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""Zip entries carry this time, so that equal sources make equal files."""


def sources() -> dict[str, bytes]:
    """Archive name -> content of every Python file of the package."""
    return {
        f"kernels/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def build_worker(folder: str | Path | None = None) -> Path:
    """Write `kernel-worker-<sha>.pyz` into `folder` (a cache folder by default); return its path.

    The name holds the SHA-256 of the contents, so a file that exists is up to date.
    """
    contents = {"__main__.py": ENTRY.encode(), **sources()}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + content + b"\0")
    target_folder = Path(folder) if folder else cache_folder()
    target_folder.mkdir(parents=True, exist_ok=True)
    target = target_folder / f"kernel-worker-{digest.hexdigest()[:16]}.pyz"
    if target.exists():
        return target
    descriptor, unfinished = tempfile.mkstemp(dir=target_folder, suffix=".part")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), content)
    Path(unfinished).replace(target)
    return target


def cache_folder() -> Path:
    """Where built workers are kept: XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tuner-kernels"
