"""YAML as settings need it: what could be read as something else than was meant is an error."""

from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text

TAG = "tag:yaml.org,2002:"
UNKNOWN_TO_JSON = ("binary", "omap", "pairs", "set")


def read(path: Path) -> Any:
    """The content of a file. Raises UserError 2 with the line of a mistake."""
    try:
        return parse(utf8_text(path.read_bytes(), str(path)))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}.", location=str(path)) from error
    except (yaml.YAMLError, RecursionError) as error:
        location, shown = str(path), ""
        # a quote that is not closed is told where it begins
        begun = "context_mark" if "end of stream" in problem_of(error) else "problem_mark"
        if mark := getattr(error, begun, None):
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
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in names and key.tag != f"{TAG}merge":
                raise _mistake(f"the key '{key.value}' appears twice", key)
            names.add(name)
        return super().construct_mapping(node, deep)

    def whole_number(self, node: Any) -> Any:
        digits = self.construct_scalar(node).replace("_", "").lstrip("+-")
        # minutes and seconds, or an octal number
        if ":" in digits or (digits[0] == "0" and digits.isdigit() and digits != "0"):
            meant = self.construct_yaml_int(node)
            raise _mistake(f"{node.value} would be read as {meant}", node)
        return self.construct_yaml_int(node)

    def number(self, node: Any) -> Any:
        if ":" in self.construct_scalar(node):
            raise _mistake(
                f"{node.value} would be read as {self.construct_yaml_float(node):g}", node
            )
        return self.construct_yaml_float(node)

    def date(self, node: Any) -> Any:  # JSON has none
        return self.construct_scalar(node)

    def refused(self, node: Any) -> Any:
        raise _mistake(f"{node.tag} is not known here", node)


Strict.add_constructor(f"{TAG}int", Strict.whole_number)
Strict.add_constructor(f"{TAG}float", Strict.number)
Strict.add_constructor(f"{TAG}timestamp", Strict.date)
for _kind in UNKNOWN_TO_JSON:
    Strict.add_constructor(f"{TAG}{_kind}", Strict.refused)


def _mistake(problem: str, node: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)
