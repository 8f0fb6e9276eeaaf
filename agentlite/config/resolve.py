"""Profile, files, --set and flags -> the settings of one command, and where each came from."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import msgspec
import yaml
from msgspec import Struct
from yaml.constructor import ConstructorError

from agentlite.config.fields import (
    NOT_IN_PLAN,
    choices,
    holds_numbers,
    is_struct,
    metavar,
    option_text,
    without_marks,
)
from agentlite.config.settings import COMMANDS, default, fields
from agentlite.config.this_machine import AUTO, CPU, GPU, has_gpu
from agentlite.core.console import SECRET_TEXT
from agentlite.core.errors import UserError, suggest
from agentlite.core.plain_words import utf8_text

TAG = "tag:yaml.org,2002:"
# as JSON has them; YAML 1.1 reads 010 as 8, 1:30 as 90 and 1e-4 as a text
INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
NUMBER = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"
    r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


def read_yaml(path: Path) -> Any:
    """The content of a file. Raises UserError 2 with the line of a mistake."""
    try:
        return parse_yaml(utf8_text(path.read_bytes(), str(path)))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}.", location=str(path)) from error
    except (yaml.YAMLError, RecursionError) as error:
        location, shown = str(path), ""
        if mark := getattr(error, "problem_mark", None):
            location, shown = f"{path}:{mark.line + 1}", mark.get_snippet() or ""
        raise UserError(
            f"invalid YAML: {problem_of(error)}.\n{shown}".rstrip(),
            "Texts with signs such as : or * need quotes; the settings of a command are indented "
            "alike, without tabs.",
            location=location,
        ) from error


def parse_yaml(text: str) -> Any:
    """The content of a text. Raises yaml.YAMLError, or RecursionError."""
    return StrictLoader(text).get_single_data()


def problem_of(error: Exception) -> str:
    """What PyYAML says, without where."""
    return str(getattr(error, "problem", None) or error)


class StrictLoader(yaml.SafeLoader):
    """YAML whose numbers are JSON's, without dates: `2025-01-01` is a text, and a key that is set
    twice is a mistake.
    """

    # by the first character of a plain word: its tags, each with the form that a word must have;
    # "stamp" is timestamp
    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML declares it so)
        first: [(tag, form) for tag, form in pairs if not tag.endswith(("int", "float", "stamp"))]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[tuple[str, str]] = set()  # with the tag: 1 and "1" are two keys
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in names and key.tag != f"{TAG}merge":  # `<<: *a` may stand more than once
                problem = f"the key '{key.value}' appears twice"
                raise ConstructorError(None, None, problem, key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep)


StrictLoader.add_implicit_resolver(f"{TAG}int", INTEGER, [*"-+0123456789"])
StrictLoader.add_implicit_resolver(f"{TAG}float", NUMBER, [*"-+.0123456789"])


# arguments of TRL or PEFT that plan.json must not keep
SECRETS = {"hub_token", "push_to_hub_token", "token", "use_auth_token"}
LOCAL_FILE = "agentlite.yaml"  # in the current folder: the settings of what is done there


class UserSettings(NamedTuple):
    """What a user said about settings, strongest first: flags, --set, --config files, --profile.
    Between the last two stands the current folder's agentlite.yaml."""

    flags: Mapping[str, Any] = {}
    sets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    profile: str = AUTO


Origins = Mapping[str, tuple[Any, str]]  # setting -> its value, and where that is from
Layers = Sequence[tuple[Mapping[str, Any], str]]  # settings, each with where they are from


class ResolvedSettings(NamedTuple):
    settings: Any
    origin: dict[str, str]

    def was_set(self, key: str) -> bool:
        """Whether it is as the user or an earlier stage has it, not as a profile or by default."""
        return self.origin[key] != "default" and not self.origin[key].startswith("profile ")


def resolve(command: str, user_settings: UserSettings) -> ResolvedSettings:
    """The settings of `command`, as the user has them."""
    return merge_layers(command, read_layers(command, user_settings))


def merge_layers(
    command: str,
    layers: Layers,
    inherited: Origins | None = None,
    planned: Origins | None = None,
    cell: Origins | None = None,
) -> ResolvedSettings:
    """The settings of `command`. `inherited` stand in for defaults, `planned` for the values of the
    profile, the first layer; `cell`, those of a cell of a grid, come above all others.
    """
    values: dict[str, Any] = {}
    origin = dict.fromkeys(fields(command), "default")
    weakest, by_memory, strongest = (
        [({key: value}, source) for key, (value, source) in (origins or {}).items()]
        for origins in (inherited, planned, cell)
    )
    for layer, source in [*weakest, *layers[:1], *by_memory, *layers[1:], *strongest]:
        check_keys(command, layer, source)
        for key, value in layer.items():
            # `trl: {seed: 1}` in a file and --set sft.trl.lr=2 are both passed on
            merge = isinstance(values.get(key), dict) and isinstance(value, dict)
            values[key] = {**values[key], **value} if merge else value
            origin[key] = source
    return ResolvedSettings(_build(command, values, origin), origin)


def plain_defaults(command: str, keys: Iterable[str]) -> dict[str, object]:
    """The defaults of those keys that are settings and have one, as JSON has them."""
    settings = fields(command) if command in COMMANDS else {}
    values = {key: default(command, key) for key in keys if key in settings}
    defaults = {key: value for key, value in values.items() if value is not msgspec.NODEFAULT}
    return dict(msgspec.json.decode(msgspec.json.encode(defaults)))


def check_keys(command: str, keys: Iterable[str], location: str) -> None:
    """Raises UserError 2 for a command, or a setting of it, that there is not."""
    if command not in COMMANDS:
        raise UserError(f"no command '{command}'. {suggest(command, COMMANDS)}", location=location)
    hint = f"`agentlite {command} --print-config` lists them all."
    for key in keys:
        if key not in fields(command):
            fix = suggest(key, fields(command), prefix=f"{command}.", fallback=hint)
            raise UserError(f"no setting '{command}.{key}'. {fix}", location=location)


def config_folder() -> Path:
    """The profiles and recipes: beside the package in a checkout, inside it in a wheel."""
    packaged = Path(__file__).parents[1] / "configs"
    return packaged if packaged.exists() else Path(__file__).parents[2] / "configs"


def local_files() -> tuple[str, ...]:
    """agentlite.yaml, if the current folder has one: it is read as if --config named it."""
    return (LOCAL_FILE,) if Path(LOCAL_FILE).is_file() else ()


def read_layers(command: str, user_settings: UserSettings) -> Layers:
    """Weakest first: profile, agentlite.yaml, files, --set, flags."""
    profile, reason = user_settings.profile, ""
    if profile == AUTO:
        profile, reason = (GPU, "") if has_gpu() else (CPU, " (no NVIDIA GPU is found)")
    files, flags = (*local_files(), *user_settings.files), user_settings.flags.items()
    return [
        (profile_section(profile, command), f"profile {profile}{reason}"),
        *((_section(find_config_file(name), command), name) for name in files),
        *(layer for text in user_settings.sets if (layer := _assignment(text, command))),
        *(({key: value}, f"--{key.replace('_', '-')}") for key, value in flags),
    ]


def profile_section(profile: str, command: str) -> dict[str, Any]:
    """What a profile sets for a command. Raises UserError 2 for a profile that is not there."""
    path = config_folder() / f"{profile}.yaml"
    if not path.exists():
        names = sorted(path.stem for path in config_folder().glob("*.yaml"))
        raise UserError(
            f"no profile '{profile}'.", f"Known: {AUTO}, {', '.join(names)}.", location="--profile"
        )
    return _section(path, command)


def find_config_file(name: str) -> Path:
    """A file of the user's, or a recipe that is shipped: `--config recipes/demo.yaml`."""
    path, shipped = Path(name), config_folder() / name
    return shipped if shipped.exists() and not path.exists() else path


def _section(path: Path, command: str) -> dict[str, Any]:
    """The settings of one command in a YAML file of sections; every section's keys are checked."""
    try:
        sections = msgspec.convert(read_yaml(path) or {}, dict[Any, dict[Any, Any] | None])
    except msgspec.ValidationError as error:
        raise UserError(
            "must hold one section per command.",
            "Put the settings under the name of a command, indented:\n  sft:\n    lora_r: 16",
            location=str(path),
        ) from error
    for section, settings in sections.items():
        check_keys(str(section), map(str, settings or ()), str(path))
    return dict(sections.get(command) or {})


def _assignment(text: str, command: str) -> tuple[dict[str, Any], str] | None:
    """`sft.lora_r=64` -> ({"lora_r": 64}, "--set"); None if it is for another command."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and key):
        raise UserError(
            f"'{text}' is not a setting.", "Write it as --set command.key=value.", location="--set"
        )
    key, *inner_keys = key.split(".")
    check_keys(section, [key], "--set")
    try:
        parsed = parse_yaml(value)
    except (yaml.YAMLError, RecursionError) as error:
        problem = f"'{value[:80]}' cannot be read as YAML: {problem_of(error)}."
        raise UserError(problem, "Put the text in quotes.", location=f"--set {name}") from error
    for inner_key in reversed(inner_keys):  # sft.trl.a.b=1 -> {"trl": {"a": {"b": 1}}}
        parsed = {inner_key: parsed}
    return ({key: parsed}, f"--set {name}") if section == command else None


def _build(command: str, values: dict[str, object], origin: Mapping[str, str]) -> object:
    settings = {}
    for key, value in values.items():
        items = value.items() if isinstance(value, dict) else ()
        secrets = [name for name, item in items if name in SECRETS or SECRET_TEXT.search(str(item))]
        if secrets:
            raise UserError(
                "a secret is not a setting: plan.json would hold it.",
                "Put it in the environment: HF_TOKEN=..., or `hf auth login`.",
                location=f"{command}.{key}.{secrets[0]}",
            )
        equals = "=" if origin[key].startswith("--set ") else " "
        written = f"{origin[key]}{equals}" if origin[key].startswith("--") else f"{key}: "
        field, location = fields(command)[key], f"{command}.{key} (from {origin[key]})"
        context = ValueContext(location, written, field.default, field.help)
        settings[key] = read_value(value, field.kind, context)
    return COMMANDS[command](**settings)


class ValueContext(NamedTuple):
    """What an error says of a value: where it is from, how it is written there, an example, and
    what it means."""

    location: str
    written: str  # `--lora-r ` or `lora_r: `
    example: object
    description: str

    def fix(self, value: str, how: str = "For example") -> str:
        return f"{how} {self.written}{value} ({self.description})."


def read_value(value: object, kind: Any, context: ValueContext) -> Any:
    """A value as its type has it: "3" -> 3. Raises UserError 2 that names the type."""
    parsed = _parse_text(value, kind, context.location)
    try:  # a plan could not hold infinity, a number of more than 64 bits or half a character
        json.dumps(parsed, allow_nan=False)
        msgspec.json.encode(parsed)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"holds what cannot be kept: {error}."
        raise UserError(problem, context.description, location=context.location) from error
    try:
        return msgspec.convert(parsed, kind, strict=False)  # "3" -> 3, "true" -> True
    except msgspec.ValidationError as error:
        raise _misfit_error(parsed, kind, error, context) from error


def _misfit_error(
    value: object, kind: Any, error: msgspec.ValidationError, context: ValueContext
) -> UserError:
    """Says why the value of a setting is wrong, which values are allowed, and how to write them."""
    example = option_text(context.example) if context.example is not msgspec.NODEFAULT else ""
    if words := choices(kind):
        values = value if isinstance(value, list) else [value]
        wrong = next((item for item in values if item not in words), value)
        problem = f"{json.dumps(wrong, ensure_ascii=False)} is not one of {', '.join(words)}."
        fix = suggest(str(wrong), words, fallback=context.fix(example or words[0]))
        return UserError(problem, fix, location=context.location)
    shown = json.dumps(value, ensure_ascii=False)
    problem = f"{shown} does not fit {metavar(kind)}: {error}."
    fix = context.fix(example) if example else context.fix(metavar(kind), "Write it as")
    return UserError(problem, fix, location=context.location)


def _parse_text(value: object, kind: Any, location: str) -> object:
    """`q_proj,v_proj` for a setting that takes several."""
    plain = without_marks(kind)
    if isinstance(value, str) and get_origin(plain) is tuple:
        return [word.strip() for word in value.split(",")] if value.strip() else []
    if is_struct(plain) or holds_numbers(plain):
        # `--weights a=1 --weights b=2` is `--weights a=1,b=2`
        value = ",".join(value) if isinstance(value, tuple) else value
        return parse_weights(value, location) if isinstance(value, str) else value
    if isinstance(value, str) and re.fullmatch(r"[-+]?\.\d+", value):  # .5 is a number in YAML
        return value.removeprefix("+").replace(".", "0.")
    if plain is float and isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value):
        return float(value[:-1]) / 100
    return list(value) if isinstance(value, tuple) else value


def parse_weights(text: str, location: str) -> dict[str, float]:
    """`tool_accuracy=.5,efficiency=0`, or the same as a JSON object, which is YAML as well -> its
    numbers by name. Raises UserError 2.
    """
    is_object = text.lstrip().startswith("{")
    try:
        # a=.5,b=0 -> {a: .5,b: 0}: as YAML, so that a name that stands twice is refused
        content = parse_yaml(text if is_object else f"{{{text.replace('=', ': ')}}}")
        # by its text, so that null, true and a mapping are no numbers, and the error shows them
        return {str(name): float(f"{value}") for name, value in content.items()}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        fix = """Write it as NAME=.5,OTHER=0, or as '{"NAME": 0.5, "OTHER": 0}'."""
        problem = f"'{text}' is no list of weights: {problem_of(error)}."
        raise UserError(problem, fix, location=location) from error


def as_yaml(command: str, resolved: ResolvedSettings) -> str:
    """`--print-config`: every setting with where it came from, as a file that --config takes."""
    lines = [f"{command}:"]
    for key, value in msgspec.to_builtins(resolved.settings).items():
        text = f"  {key}: {json.dumps(value, ensure_ascii=False)}"  # JSON is YAML
        lines.append(f"{text:<48}  # {resolved.origin[key]}")
    return "\n".join(lines)


def plain_settings(settings: Struct) -> dict[str, Any]:
    """Settings as they come back from JSON."""
    return dict(msgspec.json.decode(msgspec.json.encode(settings)))


def plan_settings(command: str, settings: Struct) -> dict[str, Any]:
    """Those by which a plan is compared."""
    plain = plain_settings(settings)
    return {
        key: value for key, value in plain.items() if NOT_IN_PLAN not in fields(command)[key].marks
    }
