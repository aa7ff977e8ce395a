"""A kernel's meta-parameters as a search space, open to every sampler of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import PrivateAttr

from kernels import Ground
from search_spaces import Configuration, Knob, Refusal, SearchSpace, Value


class KernelSpace(SearchSpace):
    """A knob for each meta-parameter; the kernel's own constraints refuse.

    The constraints are Python functions of the case and the device's limits, which no document can
    hold, so this space lives in memory only. Its control is the candidate's default.
    """

    _ground: Ground = PrivateAttr()

    @classmethod
    def of(cls, ground: Ground, only: Mapping[str, Sequence[Value]] | None = None) -> KernelSpace:
        """The space of a candidate on its ground; `only` names the values that may be tried.

        Raises KernelError when no configuration is left.
        """
        start = ground.start(only)  # type: ignore[arg-type]  # a meta-parameter is never None
        allowed = only or {}
        knobs = {
            name: Knob(
                choices=tuple(v for v in values if name not in allowed or v in allowed[name]),
                default=start[name],
            )
            for name, values in ground.candidate.space.choices.items()
        }
        space = cls(
            name=f"{ground.op.name}/{ground.case.name}/{ground.candidate.name}",
            engine="kernels",
            knobs=knobs,
        )
        space._ground = ground
        return space

    def refusals(
        self,
        configuration: Configuration,
        facts: Mapping[str, Value] = {},  # noqa: ARG002 - nothing reopens a limit of the device
    ) -> list[Refusal]:
        """Why the configuration may not run on this device, if it may not."""
        why = self._ground.refusal(configuration.assignment)
        if why is None:
            return []
        return [Refusal(code="constraint", reason=why, rule=self.name, source_code=None)]
