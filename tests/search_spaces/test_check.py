"""A space against an engine: every mistake at once, each at its place in the document."""

from __future__ import annotations

from typing import Any

from search_spaces import EngineKnob, EngineKnobs, SearchSpace, check

ENGINE = EngineKnobs(
    engine="vllm",
    version="0.32.0",
    python="3.11.7",
    files={},
    env=(
        EngineKnob(name="VLLM_CPU_OMP_THREADS_BIND", kinds=("str",), default="auto"),
        EngineKnob(name="VLLM_CPU_NUM_OF_RESERVED_CPU", kinds=("int", "null")),
        EngineKnob(name="VLLM_CPU_ATTN_SPLIT_KV", kinds=("bool",), default=True),
        EngineKnob(name="VLLM_LAYOUT", kinds=("null",), choices=("NHD", "HND")),
    ),
    args=(
        EngineKnob(name="dtype", kinds=(), choices=("auto", "bfloat16", "float32"), default="auto"),
        EngineKnob(name="enforce-eager", kinds=("bool",), default=False, takes_value=False),
        EngineKnob(name="disable-log-stats", kinds=("true",), default=False, takes_value=False),
        EngineKnob(name="max-num-seqs", kinds=("int",), default_known=False),
        EngineKnob(name="block-size", kinds=("int", "null"), default=128, aliases=("bs",)),
        EngineKnob(name="gpu-memory-utilization", kinds=("int", "float"), default=0.9),
        EngineKnob(name="optimization-level", kinds=(), choices=(0, 1, 2, 3)),
        EngineKnob(
            name="disable-cascade-attn",
            kinds=("bool",),
            deprecated="It has no effect and will be removed in v0.33.0.",
        ),
        EngineKnob(name="speculative-config", kinds=("dict", "null"), fields_of="Speculative"),
        EngineKnob(name="hf-overrides", kinds=("dict",), default={}),
    ),
    configs={
        "Speculative": (
            EngineKnob(name="method", kinds=("null",), choices=("ngram", "eagle")),
            EngineKnob(name="num_speculative_tokens", kinds=("int",)),
        )
    },
)


def problems(**document: Any) -> dict[tuple[Any, ...], str]:
    space = SearchSpace.model_validate({"name": "x", "knobs": {}, **document})
    return {one.path: one.message for one in check(space, ENGINE)}


def test_five_planted_mistakes_are_reported_at_once_with_their_places() -> None:
    found = problems(
        base={"args": {"max-num-sequences": 8}},
        knobs={
            "dtype": {"arg": "--dtype", "choices": ["bfloat16", "bfloat32"]},
            "block": {"arg": "--block-size", "choices": [None, 64, 128]},
            "reserved": {"env": "VLLM_CPU_NUM_OF_RESERVED_CPU", "choices": [None, "few"]},
            "cascade": {"arg": "--disable-cascade-attn", "choices": [None, True]},
        },
    )
    assert found == {
        ("base", "args", "max-num-sequences"): (
            "vllm 0.32.0 has no argument '--max-num-sequences'; did you mean 'max-num-seqs'?"
        ),
        ("knobs", "dtype", "choices", 1): (
            "dtype does not accept bfloat32, but auto, bfloat16, float32;"
            " did you mean 'float32' or 'bfloat16'?"
        ),
        ("knobs", "block", "choices", 2): (
            "128 repeats the engine's default, which null already stands for:"
            " two choices would be one configuration"
        ),
        ("knobs", "reserved", "choices", 1): (
            "VLLM_CPU_NUM_OF_RESERVED_CPU does not accept few, but a whole number or null"
        ),
        ("knobs", "cascade", "arg"): (
            "disable-cascade-attn is deprecated: It has no effect and will be removed in v0.33.0."
        ),
    }


def test_what_fits_has_no_problems() -> None:
    assert not problems(
        base={"args": {"dtype": "bfloat16", "hf-overrides": {"anything": {"goes": 1}}}},
        knobs={
            "eager": {"arg": "--enforce-eager", "choices": [False, True]},
            "quiet": {"arg": "--disable-log-stats", "choices": [None, True]},
            "split": {"env": "VLLM_CPU_ATTN_SPLIT_KV", "choices": [None, 0]},
            "memory": {"arg": "--gpu-memory-utilization", "range": [0.8, 0.95]},
            "level": {"arg": "--optimization-level", "choices": [0, "1", 3]},
            "layout": {"env": "VLLM_LAYOUT", "choices": ["NHD", "HND"]},
            "threads": {"env": "OMP_NUM_THREADS", "choices": [1, 2]},
            "spec": {
                "choices": ["none", "ngram"],
                "sets": {"ngram": {"args": {"speculative-config": {"method": "ngram"}}}},
            },
            "k": {
                "arg": "--speculative-config.num_speculative_tokens",
                "range": [1, 4],
                "when": "spec == 'ngram'",
            },
        },
    )


def test_entries_of_json_arguments_are_checked_by_their_dotted_paths() -> None:
    found = problems(
        base={"args": {"speculative-config": {"methd": "ngram"}}},
        knobs={
            "k": {"arg": "--speculative-config.num_spec_tokens", "range": [1, 4]},
            "method": {"arg": "--speculative-config.method", "choices": ["ngram", "eagel"]},
            "deep": {"arg": "--dtype.bits", "choices": [16]},
        },
    )
    assert found[("base", "args", "speculative-config", "methd")].endswith("did you mean 'method'?")
    assert "did you mean 'num_speculative_tokens'" in found[("knobs", "k", "arg")]
    assert "did you mean 'eagle'" in found[("knobs", "method", "choices", 1)]
    assert "so it has no entry 'bits'" in found[("knobs", "deep", "arg")]


def test_flags_without_an_opposite_take_null_instead_of_false() -> None:
    found = problems(knobs={"quiet": {"arg": "--disable-log-stats", "choices": [False, True]}})
    assert found == {
        ("knobs", "quiet", "choices", 0): (
            "disable-log-stats does not accept false, but true, or null to leave it out"
        )
    }


def test_a_range_is_checked_by_its_ends() -> None:
    found = problems(knobs={"seqs": {"arg": "--max-num-seqs", "range": [0.5, 2.5]}})
    assert list(found) == [("knobs", "seqs", "range", 0)]


def test_short_forms_and_settings_of_choices_are_checked_too() -> None:
    found = problems(
        knobs={
            "block": {"arg": "-bs", "choices": [64]},
            "mode": {"choices": ["a"], "sets": {"a": {"env": {"VLLM_LAYUOT": "NHD"}}}},
        }
    )
    assert "use --block-size" in found[("knobs", "block", "arg")]
    assert (
        "did you mean 'VLLM_LAYOUT'" in found[("knobs", "mode", "sets", "a", "env", "VLLM_LAYUOT")]
    )


def test_a_base_that_repeats_a_default_is_only_warned_of() -> None:
    space = SearchSpace.model_validate(
        {"name": "x", "knobs": {}, "base": {"env": {"VLLM_CPU_ATTN_SPLIT_KV": 1}}}
    )
    (problem,) = check(space, ENGINE)
    assert problem.severity == "warning"
    assert problem.message == "1 is the engine's default already; leave it out"


def test_a_space_of_another_engine_is_told_apart() -> None:
    assert list(problems(engine="sglang")) == [("engine",)]


def test_knobs_are_found_by_parts_and_patterns() -> None:
    names = [name for name, _ in ENGINE.search("speculative")]
    assert names == [
        "--speculative-config",
        "--speculative-config.method",
        "--speculative-config.num_speculative_tokens",
    ]
    assert [name for name, _ in ENGINE.search("vllm_cpu_*_bind")] == ["VLLM_CPU_OMP_THREADS_BIND"]
    assert [name for name, _ in ENGINE.search("MAX_NUM-seqs")] == ["--max-num-seqs"]
