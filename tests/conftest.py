"""What every test can ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.embedded import engine_python, model_folder


@pytest.fixture(scope="session")
def embedded_engine() -> Path:
    """The Python that can import vLLM; a test that asks for it is skipped where it is not made."""
    python = engine_python()
    if not python.exists():
        pytest.skip("the embedded engine is not set up: run `make engine`")
    return python


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The embedded model's folder; a test that asks for it is skipped where it is not made."""
    folder = model_folder()
    if not (folder / "config.json").exists():
        pytest.skip("the embedded model is not set up: run `make engine`")
    return folder
