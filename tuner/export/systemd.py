"""A systemd unit, which keeps the launch script running."""

from __future__ import annotations

from tuner.export.quoting import systemd_word
from tuner.export.settings import Settings
from tuner.export.templating import render


def systemd_unit(settings: Settings) -> str:
    """The unit's text. It starts the launch script, so that the checks are made at every start."""
    return render(
        "tuner.service.j2",
        settings=settings,
        title=settings.title.replace("%", "%%"),
        identity=settings.record.identity.sha,
        script=systemd_word(str(settings.script)),
        host=systemd_word(f"HOST={settings.host}"),
        study=settings.record.study,
    )
