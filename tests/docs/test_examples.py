"""The documents that the guides show are documents that the program takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from objectives import Objective
from runners import Runner
from search_spaces import SearchSpace
from tuner.study_file import StudyFile

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[dict[str, Any]]:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    return [YAML(typ="safe").load(block) for block in blocks]


def test_the_example_of_a_space_is_one_and_refuses_what_it_says() -> None:
    (document,) = examples("docs/how-to/write-a-space.md")
    space = SearchSpace.model_validate(document)
    assert space.control().args == {"max-model-len": 4096, "dtype": "bfloat16"}
    guarded = space.configure({"dtype": "float16", "spec": "ngram", "spec_k": 1})
    assert [refusal.code for refusal in space.refusals(guarded)] == ["guard"]
    dead = space.configure({"spec": "ngram", "spec_k": 4})
    facts = {"engine.version": "0.32.0"}
    assert "known_rejected" in {refusal.code for refusal in space.refusals(dead, facts)}


def test_the_example_of_a_canary_is_part_of_an_objective() -> None:
    (document,) = examples("docs/how-to/write-a-canary.md")
    workload = {"name": "w", "prompt_tokens": 8, "output_tokens": 8}
    objective = Objective.model_validate({"name": "o", "workload": workload, **document})
    assert [canary.name for canary in objective.canaries] == ["json", "sorted"]


def test_the_example_of_an_engine_is_a_runner() -> None:
    (document,) = examples("docs/how-to/write-an-engine.md")
    assert Runner.model_validate(document).engine == "command"


def test_the_readmes_study_and_runner_are_documents() -> None:
    study, runner = examples("README.md")
    assert StudyFile.model_validate(study).budget.trials == 60
    assert Runner.model_validate(runner).devices.kind == "cuda"
