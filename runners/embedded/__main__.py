"""Make the embedded engine and model: `python -m runners.embedded`."""

from __future__ import annotations

import sys

from runners.embedded import engine_python, model_folder
from runners.embedded.engine import engine
from runners.embedded.environment import complain, say
from runners.embedded.model import Model


def make() -> None:
    """Make what is not there yet; say nothing when everything is."""
    environment = engine(engine_python().parents[1], say)
    environment.make()
    Model(model_folder(), environment.python, say).make()


if __name__ == "__main__":
    sys.exit(complain(make))
