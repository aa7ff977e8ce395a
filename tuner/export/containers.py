"""What compose files and Kubernetes manifests have in common."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tuner.export.settings import HOST, PORT, Settings

EVERYWHERE = "0.0.0.0"  # noqa: S104 - in a container, whose ports are published by name
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def container_words(settings: Settings, port: int) -> list[str]:
    """The command without its program, listening on `port` of every address of the container."""
    return [w.replace(PORT, str(port)).replace(HOST, EVERYWHERE) for w in settings.words[1:]]


def folder_of_model(settings: Settings) -> Path | None:
    """The folder to mount for the model, at its own path; None for a name on a hub."""
    path = Path(settings.model_word)
    if not path.is_absolute():
        return None
    single = path.name in settings.model_files and len(settings.model_files) == 1
    return path.parent if single else path


def yaml_text(text: str) -> str:
    """A text as a quoted YAML scalar, which is JSON but for what YAML counts as unprintable."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)
