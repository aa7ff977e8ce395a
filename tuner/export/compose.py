"""A compose file: the measured command and environment in a container of the reader's choosing."""

from __future__ import annotations

from tuner.export.containers import container_words, folder_of_model, yaml_text
from tuner.export.settings import Settings
from tuner.export.templating import render

PORT = 8000
"""The port inside the container, where it collides with nothing."""


def compose_file(settings: Settings) -> str:
    """The file's text. `docker compose` replaces `$`, so every one of ours is doubled."""

    def literal(text: str) -> str:
        return yaml_text(text.replace("$", "$$"))

    return render(
        "compose.yaml.j2",
        settings=settings,
        record=settings.record,
        program=literal("python3" if settings.is_vllm else settings.program),
        words=[literal(word) for word in container_words(settings, PORT)],
        env={name: literal(value) for name, value in settings.env.items()},
        port=PORT,
        folder=None
        if folder_of_model(settings) is None
        else literal(str(folder_of_model(settings))),
        device=settings.record.identity.topology.get("kind", "cpu"),
        count=settings.record.identity.topology.get("count", 1),
        version=settings.record.identity.engine.get("version", "unknown"),
    )
