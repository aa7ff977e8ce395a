"""The documents of a new study, made from an existing command line: a control, and a space."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from search_spaces import SearchSpace
from search_spaces.knob import Knob
from tuner.catalog import find as shelved
from tuner.catalog import names
from tuner.document import load
from tuner.serve_command import ServeCommand

FALLBACK_SPACE = "vllm-cpu"


class AlreadyThereError(FileExistsError):
    """A file of that name is there already, and nothing was written."""


@dataclass(frozen=True)
class Scaffold:
    """The files of a new study by name, and sentences that a person should read."""

    files: Mapping[str, str]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write all files, or none. Raises AlreadyThereError if one of them is there already."""
        paths = {folder / name: text for name, text in self.files.items()}
        for path in paths:
            if path.exists():
                raise AlreadyThereError(
                    f"{path} is there already; give another --name, or move it."
                )
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
        return list(paths)


def scaffold(command: ServeCommand, name: str, *, kind: str = "", trials: int = 40) -> Scaffold:
    """A study, a space and a runner for a command line.

    The space's control is exactly the command. Its knobs are those of our catalog for that kind of
    device which the command leaves alone, or whose present value becomes the control's.
    """
    kind = kind or command.kind
    notes = list(command.notes)
    python = command.python or _python_of_vllm()
    if python is None:
        python = "python3"
        notes.append("No vLLM was found on the PATH: set `python` in the runner.")
    knobs, source = _knobs(command, kind)
    space: dict[str, Any] = {
        "name": f"{name}-space",
        "description": f"Around the command of {name}; knobs from our catalog's {source}.",
        "engine": "vllm",
        "base": {"args": command.args, "env": command.env},
        "knobs": knobs,
    }
    runner: dict[str, Any] = {
        "name": f"{name}-runner",
        "engine": "vllm",
        "python": python,
        "model": command.model,
        "served_model_name": command.served_model_name,
        "devices": {"kind": kind, "count": command.devices},
        "secrets": command.secrets,
    }
    study: dict[str, Any] = {
        "name": name,
        "space": f"./{name}-space.yaml",
        "objective": "no-quality-loss",
        "runner": f"./{name}-runner.yaml",
        "seed": 1,
        "budget": {"trials": trials},
    }
    documents = {f"{name}.yaml": study, f"{name}-space.yaml": space, f"{name}-runner.yaml": runner}
    return Scaffold({file: _yaml(_filled(d)) for file, d in documents.items()}, tuple(notes))


def _knobs(command: ServeCommand, kind: str) -> tuple[dict[str, Any], str]:
    """Knobs around the command, as documents, and the name of the space that they come from."""
    source = f"vllm-{kind}" if f"vllm-{kind}" in names("space") else FALLBACK_SPACE
    catalog = load(shelved("space", source, Path()), SearchSpace)
    kept: dict[str, Any] = {}
    for name in catalog.order:
        knob = catalog.knobs[name]
        document = _around(knob, command)
        if document is None or not _needs(knob) <= kept.keys():
            continue
        if source != f"vllm-{kind}" and str(knob.env or "").startswith("VLLM_CPU_"):
            continue
        trial = {**kept, name: document}
        try:
            space = SearchSpace.model_validate({"name": "trial", "knobs": trial})
        except ValidationError:
            continue
        if _is_as_given(space, command):
            kept = trial
    return kept, source


def _around(knob: Knob, command: ServeCommand) -> dict[str, Any] | None:
    """A catalog's knob with the command's value as its default; None where that cannot be."""
    document: dict[str, Any] = knob.model_dump(mode="json", exclude_unset=True)
    if knob.when is not None:
        document["when"] = knob.when.text
    if knob.arg is None and knob.env is None:
        return None if _touches(knob, command) else document
    set_to = command.args.get(knob.arg) if knob.arg else command.env.get(str(knob.env))
    if knob.choices is None:
        # A range cannot leave its setting out, so that its lowest value would become the control's.
        return document if knob.when is not None else None
    if isinstance(set_to, dict | list):
        return None
    others = [choice for choice in knob.choices if str(choice) != str(set_to)]
    document["choices"] = [set_to, *(choice for choice in others if choice is not None)]
    document.pop("default", None)
    return document


def _touches(knob: Knob, command: ServeCommand) -> bool:
    """Whether a choice of the knob sets something that the command sets already."""
    given = {name.split(".")[0] for name in command.args} | set(command.env)
    for settings in knob.sets.values():
        if {name.split(".")[0] for name in settings.args} & given or set(settings.env) & given:
            return True
    return False


def _needs(knob: Knob) -> set[str]:
    """The knobs that a knob's condition asks about."""
    return set() if knob.when is None else set(knob.when.names)


def _is_as_given(space: SearchSpace, command: ServeCommand) -> bool:
    """Whether the knobs at their defaults set only what the command sets."""
    control = space.control()
    return all(command.args.get(k) == v for k, v in control.args.items()) and all(
        command.env.get(k) == v for k, v in control.env.items()
    )


def _python_of_vllm() -> str | None:
    """The Python of the `vllm` on the PATH: its console script names it in the first line."""
    script = shutil.which("vllm")
    if script is None:
        return None
    first = Path(script).read_bytes().split(b"\n", 1)[0].decode("utf-8", "replace")
    match = re.fullmatch(r"#!\s*(\S*python\S*)", first.strip())
    return match[1] if match else None


def _filled(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys that say nothing."""
    return {key: value for key, value in document.items() if value not in ("", [], {})}


def _yaml(document: Mapping[str, Any]) -> str:
    out = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 100
    yaml.dump(dict(document), out)
    return out.getvalue()
