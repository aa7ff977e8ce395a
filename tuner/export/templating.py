"""The templates of exports: plain text, whose values are quoted by whoever fills them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(
    template: str, *, filters: dict[str, Callable[..., Any]] | None = None, **values: Any
) -> str:
    """A template of `tuner/templates` with its values; an unknown name in it is an error."""
    environment = Environment(
        loader=PackageLoader("tuner"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - none of these is HTML; each format has its own quoting
        keep_trailing_newline=True,
        trim_blocks=template != "launch.sh.j2",
        lstrip_blocks=template != "launch.sh.j2",
    )
    environment.filters |= filters or {}
    return environment.get_template(template).render(**values)
