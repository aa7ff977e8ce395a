"""An op: what must be computed, by whom it may be computed, and when two answers are the same.

An op is registered by decorating its *reference*, the accepted path written in plain torch:

    @op(name="double", cases=(Case("small", {"rows": 4}),), make_inputs=..., make_outputs=...,
        exactness=BitExact("one multiplication by a power of two"), cost=...)
    def double(inputs): return {"y": inputs["x"] * 2}

    @double.candidate()
    def torch_mul(inputs, outputs, config): torch.mul(inputs["x"], 2, out=outputs["y"])

A candidate writes every element of every output it is handed; the checker fills those with
values that are known to be wrong first. A user's file does the same and is loaded by its path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
Run = Callable[[Tensors, Tensors, Config], None]


class KernelError(Exception):
    """Something a person asked of the kernels package that cannot be done; one clear sentence."""


@dataclass(frozen=True)
class Case:
    """One shape an op is checked and timed at. `params` is JSON data that `make_inputs` reads."""

    name: str
    params: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.params[key]

    def get(self, key: str, default: Any) -> Any:
        """A parameter, or `default` where the case has none of that name."""
        return self.params.get(key, default)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "params": dict(self.params)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Case:
        """The inverse of `to_json`."""
        return Case(str(data["name"]), dict(data["params"]))


@dataclass(frozen=True)
class Cost:
    """What a call must move and compute at the very least: the roofline's two numbers.

    `bytes` counts each input element that is needed once and each output element once;
    `operations` counts multiplications and additions separately.
    """

    bytes: int
    operations: int

    def floor_us(self, bytes_per_s: float, operations_per_s: float) -> float:
        """Microseconds under which no version can run, given the two measured ceilings."""
        return 1e6 * max(self.bytes / bytes_per_s, self.operations / operations_per_s)


@dataclass(frozen=True)
class BitExact:
    """Every bit of every output equals the reference's."""

    reason: str

    def describe(self) -> str:
        """The rule and its reason in one line."""
        return f"bit-exact: {self.reason}"


@dataclass(frozen=True)
class Bound:
    """Floating outputs may lie up to `max_ulp` representable values from the reference's.

    Integer outputs stay exact under a bound. NaN is never within a bound.
    """

    max_ulp: int
    reason: str

    def describe(self) -> str:
        """The rule and its reason in one line."""
        return f"within {self.max_ulp} units in the last place: {self.reason}"


Exactness = BitExact | Bound


@dataclass(frozen=True)
class Candidate:
    """One way to compute an op.

    `needs` are modules that must be importable where it runs, `devices` the device types it runs
    on, `graph_safe` whether it can be captured into a device graph (a candidate that reads sizes
    on the host cannot). `separate` marks the path of separate steps that a fused one must beat.
    """

    name: str
    run: Run
    space: Space = field(default_factory=Space)
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda", "xpu")
    graph_safe: bool = True
    separate: bool = False
    summary: str = ""

    def missing(self, device_type: str) -> str | None:
        """Why this candidate cannot run on `device_type` here, or None."""
        if device_type not in self.devices:
            return f"runs on {', '.join(self.devices)}, not on {device_type}"
        for module in self.needs:
            if importlib.util.find_spec(module) is None:
                return f"needs {module}, which this Python does not have"
        return None


@dataclass
class Op:
    """A registered op. Candidates are added by `@op.candidate(...)`, also from other files."""

    name: str
    summary: str
    reference: Callable[[Tensors], Tensors]
    cases: tuple[Case, ...]
    make_inputs: Callable[[Case, torch.Generator, str], Tensors]
    make_outputs: Callable[[Case, Tensors], Tensors]
    exactness: Exactness
    cost: Callable[[Case, Tensors], Cost]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    source: str = ""

    def candidate(
        self,
        *,
        name: str | None = None,
        space: Space | None = None,
        needs: Iterable[str] = (),
        devices: Iterable[str] = ("cpu", "cuda", "xpu"),
        graph_safe: bool = True,
        separate: bool = False,
    ) -> Callable[[Run], Run]:
        """Register a way to compute this op. Its function is handed (inputs, outputs, config)."""

        def add(run: Run) -> Run:
            key = name or str(getattr(run, "__name__", "candidate"))
            if key in self.candidates:
                raise KernelError(
                    f"op {self.name!r} already has a candidate {key!r}: choose another name"
                )
            self.candidates[key] = Candidate(
                name=key,
                run=run,
                space=space or Space(),
                needs=tuple(needs),
                devices=tuple(devices),
                graph_safe=graph_safe,
                separate=separate,
                summary=first_line(run.__doc__),
            )
            return run

        return add

    def case(self, name: str) -> Case:
        """The named case; raises KernelError listing the known ones."""
        for case in self.cases:
            if case.name == name:
                return case
        known = ", ".join(case.name for case in self.cases)
        raise KernelError(f"op {self.name!r} has no case {name!r}; its cases are {known}")

    def pick(self, name: str) -> Candidate:
        """The named candidate; raises KernelError listing the known ones."""
        if name not in self.candidates:
            known = ", ".join(self.candidates)
            raise KernelError(f"op {self.name!r} has no candidate {name!r}; it has {known}")
        return self.candidates[name]


REGISTRY: dict[str, Op] = {}

OP_FILE_MODULE = "kernel_op_file_"
"""Beginning of the module name of a loaded op file."""


def op(
    *,
    name: str,
    cases: Iterable[Case],
    make_inputs: Callable[[Case, torch.Generator, str], Tensors],
    make_outputs: Callable[[Case, Tensors], Tensors],
    exactness: Exactness,
    cost: Callable[[Case, Tensors], Cost],
) -> Callable[[Callable[[Tensors], Tensors]], Op]:
    """Register the decorated function as the reference of a new op and return the op."""

    def build(reference: Callable[[Tensors], Tensors]) -> Op:
        if name in REGISTRY:
            raise KernelError(f"an op named {name!r} is registered already: choose another name")
        made = Op(
            name=name,
            summary=first_line(reference.__doc__),
            reference=reference,
            cases=tuple(cases),
            make_inputs=make_inputs,
            make_outputs=make_outputs,
            exactness=exactness,
            cost=cost,
            source=reference.__code__.co_filename,
        )
        REGISTRY[name] = made
        return made

    return build


def load_file(path: str | Path) -> None:
    """Run a user's op file, once: its decorators register ops and candidates.

    Raises KernelError when the file is missing or fails to load; nothing of it stays registered.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise KernelError(f"no op file at {path}: give the path of a Python file")
    module_name = OP_FILE_MODULE + hashlib.sha256(str(file).encode()).hexdigest()[:12]
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise KernelError(f"op file {path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    restore = registry_restorer()
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        restore()
        raise KernelError(f"op file {path} failed to load: {describe_error(error)}") from error


def registry_restorer() -> Callable[[], None]:
    """A function that forgets every op, candidate and op file that is registered after now."""
    ops = dict(REGISTRY)
    candidates = {name: dict(known.candidates) for name, known in ops.items()}
    modules = set(sys.modules)

    def restore() -> None:
        REGISTRY.clear()
        REGISTRY.update(ops)
        for name, known in ops.items():
            known.candidates = dict(candidates[name])
        for name in set(sys.modules) - modules:
            if name.startswith(OP_FILE_MODULE):
                del sys.modules[name]

    return restore


def describe_error(error: BaseException) -> str:
    """One line for an exception, its type and the last line that says something."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def first_line(text: str | None) -> str:
    """The first line of a docstring, empty without one."""
    return (text or "").strip().splitlines()[0] if (text or "").strip() else ""
