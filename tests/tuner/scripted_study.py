"""Builds a study folder whose engine is the scripted server: real processes, real Ray, no model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tuner.study import Study

SERVER = Path(__file__).parents[1] / "engines" / "scripted_server.py"

KNOBS: dict[str, Any] = {
    "speed": {"arg": "--knob-speed", "choices": [1.0, 0.5, 1.5], "group": "speed"},
    "wrong": {"arg": "--knob-wrong", "choices": [0, 1], "group": "numbers"},
    "block_size": {"arg": "--die-at", "choices": [None, "startup"], "group": "memory"},
}

OBJECTIVE: dict[str, Any] = {
    "name": "tiny",
    "workload": {"name": "p16-o32", "prompt_tokens": 16, "output_tokens": 32, "warmup": 0},
    "minimal_effect": 0.02,
    "session_drift": 0.08,
    "canaries": [
        {
            "name": "json",
            "prompt": "Answer in JSON: 6 x 7 widgets.",
            "max_tokens": 32,
            "expected": "control",
        }
    ],
    "quality": {"repeat_runs": 2, "repeat_tokens": 8, "long_context_tokens": 0},
    "parity": {"output_tokens": 16, "prompts": 3, "prompt_tokens": 16},
    "ladder": [
        {"rung": "smoke", "repeats": 1, "canary_repeats": 2, "parity_prompts": 1},
        {
            "rung": "deep",
            "repeats": 3,
            "canary_repeats": 8,
            "parity_prompts": 3,
            "quality": True,
            "ab": True,
        },
    ],
}


def runner(*flags: str) -> dict[str, Any]:
    """A runner document for the scripted server; `flags` are given to every start."""
    return {
        "name": "scripted",
        "engine": "command",
        "python": sys.executable,
        "model": "scripted",
        "command": ["{python}", str(SERVER), "--port", "{port}", *flags, "{args}"],
        "timeouts": {"launch_s": 10, "ready_s": 20, "first_token_s": 10, "request_s": 10},
    }


def write_study(
    folder: Path,
    *,
    enqueue: list[dict[str, Any]],
    trials: int = 4,
    flags: tuple[str, ...] = (),
    knobs: dict[str, Any] | None = None,
    objective: dict[str, Any] | None = None,
    **more: Any,
) -> Study:
    """Write the four documents of a study into `folder` and load it."""
    documents = {
        "space": {"name": "space", "knobs": knobs or KNOBS},
        "objective": {**OBJECTIVE, **(objective or {})},
        "runner": runner("--tok-s", "400", *flags),
        "study": {
            "name": "study",
            "space": "./space.yaml",
            "objective": "./objective.yaml",
            "runner": "./runner.yaml",
            "budget": {"trials": trials},
            "enqueue": enqueue,
            **more,
        },
    }
    yaml = YAML(typ="safe")
    for name, document in documents.items():
        yaml.dump(document, folder / f"{name}.yaml")
    return Study.load(str(folder / "study.yaml"))
