"""YAML as settings need it: what could be read as something else than was meant is an error."""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text

TAG = "tag:yaml.org,2002:"
UNKNOWN_TO_JSON = {f"{TAG}{name}" for name in ("binary", "omap", "pairs", "set", "timestamp")}
# as JSON has them; YAML 1.1 reads 010 as 8, 1:30 as 90 and 1e-4 as a text
WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
NUMBER = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"
    r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


def read(path: Path) -> Any:
    """The content of a file. Raises UserError 2 with the line of a mistake."""
    try:
        return parse(utf8_text(path.read_bytes(), str(path)))
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


def parse(text: str) -> Any:
    """The content of a text. Raises yaml.YAMLError, or RecursionError."""
    return Strict(text).get_single_data()


def problem_of(error: Exception) -> str:
    """What PyYAML says, without where."""
    return str(getattr(error, "problem", None) or error)


class Strict(yaml.SafeLoader):
    yaml_constructors = {  # noqa: RUF012  (PyYAML declares it so)
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag not in UNKNOWN_TO_JSON
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in known if not tag.endswith(("int", "float", "stamp"))]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in names and key.tag != f"{TAG}merge":
                problem = f"the key '{key.value}' appears twice"
                raise ConstructorError(None, None, problem, key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep)


Strict.add_implicit_resolver(f"{TAG}int", WHOLE, [*"-+0123456789"])
Strict.add_implicit_resolver(f"{TAG}float", NUMBER, [*"-+.0123456789"])
