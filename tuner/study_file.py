"""The study document: which space, objective and runner, what to spend, and where to keep it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from objectives import Objective
from runners import Runner
from search_spaces import BadValue, Configuration, SearchSpace, UnknownKnob
from tuner.catalog import find
from tuner.choosers import SamplerName
from tuner.document import Document, DocumentError, Model, Problem, load
from tuner.identity import Value

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""Names become folders, Optuna studies and MLflow runs: no separators, no leading dot."""


class Budget(BaseModel):
    """When to stop drawing; whichever is reached first. A trial that has begun is finished."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trials: int = Field(default=50, ge=1, description="Trials that start an engine, control too.")
    minutes: float | None = Field(default=None, gt=0, description="Wall-clock time of one run.")


class Tracking(BaseModel):
    """Where MLflow keeps the runs; by default a SQLite file in the study's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str | None = None


class StudyFile(BaseModel):
    """What a person writes to launch a study."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=NAME)
    description: str = ""
    space: str
    objective: str
    runner: str
    seed: int = 0
    sampler: SamplerName = Field(
        default="guided", description="Who chooses what is tried next; benchmarks/search says why."
    )
    budget: Budget = Budget()
    enqueue: tuple[dict[str, Value], ...] = Field(
        default=(), description="Configurations to try first, as values of some knobs."
    )
    storage: str | None = Field(
        default=None,
        description="Optuna storage URL, as postgresql+psycopg://...; a journal file if unset.",
    )
    tracking: Tracking = Tracking()
    ray_address: str | None = Field(
        default=None, description="A Ray cluster to join; a local one is started if unset."
    )
    max_attempts: int = Field(
        default=3, ge=1, description="How often a trial is tried while its results are invalid."
    )


@dataclass(frozen=True)
class StudyFiles:
    """A study with the three documents that it names, all read and checked."""

    path: Path
    study: StudyFile
    space: SearchSpace
    objective: Objective
    runner: Runner

    @property
    def folder(self) -> Path:
        """Where everything of this study is kept: beside its file, under the file's stem."""
        return self.path.parent / self.path.stem

    @property
    def enqueued(self) -> list[Configuration]:
        """The configurations that the user named, completed."""
        return [self.space.configure(assignment) for assignment in self.study.enqueue]


def locate(name: str) -> Path:
    """The study file that `name` means: a path, or the stem of a file in `studies/`.

    Raises DocumentError if there is none.
    """
    given = Path(name)
    folder_of = given.with_suffix(".yaml") if given.is_dir() else given
    for path in (
        folder_of,
        given.with_name(given.name + ".yaml"),
        Path("studies") / f"{name}.yaml",
    ):
        if path.is_file():
            return path
    reason = "no such study; give the path of its YAML file, or its name if it is in studies/."
    raise DocumentError([Problem(given, reason)])


def read(name: str) -> StudyFiles:
    """Read a study and all that it names. Raises DocumentError with every mistake found."""
    path = locate(name).resolve()
    document = Document(path)
    study = document.validate(StudyFile)
    problems: list[Problem] = []

    def shelf(kind: str, entry: str, model: type[Model]) -> Model | None:
        try:
            file = find(kind, entry, path.parent)
        except DocumentError as error:
            problems.append(document.problem((kind,), error.problems[0].message))
            return None
        try:
            return load(file, model)
        except DocumentError as error:
            problems.extend(error.problems)
            return None

    space = shelf("space", study.space, SearchSpace)
    objective = shelf("objective", study.objective, Objective)
    runner = shelf("runner", study.runner, Runner)
    if space is not None:
        problems += _enqueue_problems(document, study, space)
    if space is None or objective is None or runner is None or problems:
        raise DocumentError(problems)
    return StudyFiles(path, study, space, objective, runner)


def _enqueue_problems(document: Document, study: StudyFile, space: SearchSpace) -> list[Problem]:
    problems = []
    for index, assignment in enumerate(study.enqueue):
        try:
            space.configure(assignment)
        except (UnknownKnob, BadValue) as error:
            problems.append(document.problem(("enqueue", index), str(error)))
    return problems
