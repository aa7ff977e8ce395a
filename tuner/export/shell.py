"""The launch script: a shell script that checks, cleans its environment, and becomes the server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from tuner.export.quoting import checksum_line, shell_word
from tuner.export.settings import HOST, PORT, ExportError, Settings
from tuner.export.templating import render
from tuner.identity import Identity

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z0-9_*?]+")

PROBE = """import importlib.metadata as m, platform, sys
print("python", platform.python_version())
for name in sys.argv[1:]:
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, "absent")"""
"""Prints the versions of packages without importing them."""

FOLDER_PROBE = """import importlib.util as u, os
print(os.path.dirname(u.find_spec("vllm").origin))"""

MEASURED = "# measured: "
"""Begins the line of a script that holds its identity."""

OBSERVED_BY = ("TUNER_MARKER", "SPT_NOENV")
"""What `tuner verify` sets to tell its own processes from others; no engine reads them."""

PACKAGES = {"torch": "torch", "transformers": "transformers", "triton": "triton"}
"""Facts of an engine's identity that are the version of a package, with the package's name."""


def shell_script(settings: Settings) -> str:
    """The script's text. Raises ExportError for a variable whose name no shell can set."""
    for name in (*settings.env, *settings.masks, *settings.secrets):
        if not _NAME.fullmatch(name):
            raise ExportError(
                f"no shell can set a variable named {name!r}; export as json instead."
            )
    packages = package_versions(settings)
    folder = Path(settings.model_word)
    single = folder.name in settings.model_files and len(settings.model_files) == 1
    return render(
        "launch.sh.j2",
        filters={"shell": shell_word, "command_word": command_word},
        title=settings.title,
        identity=settings.record.identity.sha,
        model_note=_model_note(settings),
        host=settings.host,
        env=settings.env,
        masks=settings.masks,
        secrets=settings.secrets,
        kept=[*filter(_PATTERN.fullmatch, settings.inherit), *settings.secrets, *OBSERVED_BY],
        words=settings.words,
        cores=settings.cores,
        measured=json.dumps(settings.record.identity.model_dump(mode="json")),
        is_vllm=settings.is_vllm,
        packages="\n".join(f"{name} {version}" for name, version in packages.items()),
        package_names=[name for name in packages if name != "python"],
        probe=PROBE,
        folder_probe=FOLDER_PROBE,
        binaries=_sums(settings.binaries),
        model_folder=settings.model_word,
        model_root=str(folder.parent if single else folder),
        model_sums=_sums(settings.model_files),
        model_count=len(settings.model_files),
    )


def identity_in(script: str) -> Identity | None:
    """The identity that a launch script carries as data; None if the text is no launch script."""
    lines = [line for line in script.splitlines() if line.startswith(MEASURED)]
    if not lines:
        return None
    try:
        return Identity.model_validate_json(lines[-1].removeprefix(MEASURED))
    except ValidationError:
        return None


def command_word(word: str) -> str:
    """A word of the command, with the marks of port and host as the script's variables."""
    parts = re.split(f"({PORT}|{HOST})", word)
    variables = {PORT: '"$tuner_port"', HOST: '"$tuner_host"'}
    return "".join(variables.get(part) or shell_word(part) for part in parts if part) or "''"


def package_versions(settings: Settings) -> Mapping[str, str]:
    """What the script's probe must print for the measured engine: versions by package."""
    if not settings.is_vllm:
        return {}
    engine = settings.record.identity.engine
    versions = {"python": engine.get("python"), engine.get("name", "vllm"): engine.get("version")}
    versions |= {package: engine.get(fact) for fact, package in PACKAGES.items()}
    if engine.get("kernels"):
        versions["vllm-xpu-kernels"] = engine["kernels"]
    return {name: version or "absent" for name, version in versions.items()}


def _sums(files: Mapping[str, str]) -> str:
    return "\n".join(checksum_line(name, sha) for name, sha in files.items())


def _model_note(settings: Settings) -> str:
    if settings.model_files:
        return f"The model's {len(settings.model_files)} files are checked too."
    return "The model is a name on a hub: whether its files are the measured ones is not checked."
