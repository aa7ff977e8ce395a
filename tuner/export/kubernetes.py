"""A Kubernetes manifest: a Deployment and its Service."""

from __future__ import annotations

import re

from tuner.export.containers import container_words, folder_of_model, yaml_text
from tuner.export.settings import Settings
from tuner.export.templating import render

PORT = 8000

RESOURCES = {"cuda": "nvidia.com/gpu", "xpu": "gpu.intel.com/xe"}
"""What the device plugin of each kind of device calls one device."""


def kubernetes_manifest(settings: Settings) -> str:
    """The manifest's text. Kubernetes replaces `$(NAME)`, so every `$` of ours is doubled."""

    def literal(text: str) -> str:
        return yaml_text(text.replace("$", "$$"))

    identity = settings.record.identity
    folder = folder_of_model(settings)
    name = re.sub(r"[^a-z0-9]+", "-", settings.record.study.lower()).strip("-")[:40] or "engine"
    return render(
        "kubernetes.yaml.j2",
        settings=settings,
        record=settings.record,
        name=f"{name}-{identity.sha[:8]}",
        program=literal("python3" if settings.is_vllm else settings.program),
        words=[literal(word) for word in container_words(settings, PORT)],
        env={key: literal(value) for key, value in settings.env.items()},
        port=PORT,
        folder=None if folder is None else yaml_text(str(folder)),
        readiness=yaml_text(settings.record.launch["readiness"]["path"]),
        resource=RESOURCES.get(identity.topology.get("kind", "")),
        count=identity.topology.get("count", 1),
        version=identity.engine.get("version", "unknown"),
    )
