"""Meta-parameters: what is legal, and why the rest is refused."""

from __future__ import annotations

from kernels import Constraint, DeviceLimits, Space, legal_configs

H200 = DeviceLimits(shared_memory_bytes=232_448, registers=65_536, max_threads=2048, units=132)

SPACE = Space(
    {"TILE": (16, 32, 64), "STAGES": (1, 2)},
    (
        Constraint(
            "the tiles exceed shared memory",
            lambda config, params, limits: (
                config["TILE"] * config["STAGES"] * params["bytes"] <= limits.shared_memory_bytes
            ),
        ),
    ),
    default={"TILE": 64, "STAGES": 2},
)
SMALL = DeviceLimits(shared_memory_bytes=64, registers=1, max_threads=1, units=1)


def test_a_refusal_says_what_of_the_device_would_be_exceeded() -> None:
    assert SPACE.refusal({"TILE": 64, "STAGES": 2}, {"bytes": 1}, SMALL) == (
        "the tiles exceed shared memory"
    )
    assert SPACE.refusal({"TILE": 32, "STAGES": 2}, {"bytes": 1}, SMALL) is None


def test_unknown_missing_and_foreign_values_are_named() -> None:
    params = {"bytes": 1}
    assert "'WARPS'" in str(SPACE.refusal({"WARPS": 1}, params, SMALL))
    assert "'STAGES' has no value" in str(SPACE.refusal({"TILE": 16}, params, SMALL))
    assert "TILE = 17" in str(SPACE.refusal({"TILE": 17, "STAGES": 1}, params, SMALL))


def test_the_start_is_the_default_where_it_is_legal_and_else_the_first_that_is() -> None:
    assert SPACE.start({"bytes": 1}, H200) == {"TILE": 64, "STAGES": 2}
    assert SPACE.start({"bytes": 1}, SMALL) == {"TILE": 16, "STAGES": 1}
    assert SPACE.start({"bytes": 100}, SMALL) is None


def test_an_empty_space_has_one_configuration() -> None:
    assert list(Space().legal({}, SMALL)) == [{}]


def test_the_grouped_gemm_has_over_a_thousand_legal_configurations_on_an_h200() -> None:
    legal = legal_configs("grouped_gemm_w8a8", "decode_tp4_t1_gemm1", "triton_grouped", H200)
    assert len(legal) == 1176
    assert len({tuple(sorted(config.items())) for config in legal}) == len(legal)


def test_one_launch_is_refused_where_its_programs_would_not_all_be_resident() -> None:
    assert legal_configs("moe_layerlet", "decode_tp4_t1", "triton_one_launch", H200)
    assert not legal_configs("moe_layerlet", "decode_tp4_t64", "triton_one_launch", H200)


def test_choices_become_knobs_of_a_search_space() -> None:
    assert SPACE.knobs("moe")["STAGES"] == {
        "kernel": "STAGES", "choices": [1, 2], "group": "moe"
    }  # fmt: skip
