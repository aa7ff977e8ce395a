"""The measured settings as data: JSON, and a file of variables."""

from __future__ import annotations

import json

from tuner.export.quoting import shell_word
from tuner.export.settings import HOST, PORT, ExportError, Settings


def json_document(settings: Settings) -> str:
    """Everything that a start needs, as JSON; `{port}` and `{host}` stand in the command.

    A brace of the command itself is doubled, so that Python's `str.format` gives the word back.
    """
    document = {
        "title": settings.title,
        "identity": settings.record.identity.sha,
        "study": settings.record.study,
        "trial": settings.record.number,
        "command": [_with_places(word) for word in settings.words],
        "args": dict(settings.args),
        "env": dict(settings.env),
        "devices": dict(settings.masks),
        "cores": settings.cores,
        "inherit": list(settings.inherit),
        "secrets": list(settings.secrets),
        "measured": settings.record.identity.model_dump(mode="json"),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def env_file(settings: Settings) -> str:
    """The environment as a file that a shell sources; the arguments are in the other formats.

    Raises ExportError for a variable whose name no shell can set.
    """
    for name in settings.env:
        if not name.isidentifier() or not name.isascii():
            raise ExportError(
                f"no shell can set a variable named {name!r}; export as json instead."
            )
    lines = [
        f"# {settings.title}",
        f"# Identity {settings.record.identity.sha}",
        "# Source it: set -a; . ./launch.env; set +a",
        *(f"{name}={shell_word(value)}" for name, value in settings.env.items()),
    ]
    return "\n".join(lines) + "\n"


def _with_places(word: str) -> str:
    braced = word.replace("{", "{{").replace("}", "}}")
    return braced.replace(PORT, "{port}").replace(HOST, "{host}")
