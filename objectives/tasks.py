"""Local tasks in the manner of lm-eval: questions with targets, from a file of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from objectives.client import Ask, Client
from objectives.quality_cases import TaskFile


class TaskFileError(ValueError):
    """A task file cannot be used; the message names the file and the line."""


class Question(BaseModel):
    """A prompt with the target its answer must equal, or with choices to rank by likelihood."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    target: str
    max_tokens: int = 32
    stop: tuple[str, ...] = ()

    async def is_right(self, client: Client) -> bool:
        """Whether the greedy answer, stripped of white space, is the target."""
        said = await client.complete(
            Ask(prompt=self.prompt, max_tokens=self.max_tokens, stop=self.stop)
        )
        return said.text.strip() == self.target.strip()


def read_task(task: TaskFile) -> list[Question]:
    """The questions of a task's file. Raises TaskFileError."""
    path = Path(task.path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TaskFileError(f"{path}: cannot read this task file ({error.strerror}).") from None
    questions: list[Question] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            questions.append(
                Question(
                    prompt=row["prompt"],
                    target=row["target"],
                    max_tokens=task.max_tokens,
                    stop=task.stop,
                )
            )
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise TaskFileError(
                f"{path}:{number}: not a question with `prompt` and `target` ({error!r})."
            ) from None
    if not questions:
        raise TaskFileError(f"{path}: holds no question; add lines with `prompt` and `target`.")
    return questions[: task.limit]
