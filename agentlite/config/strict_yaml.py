"""YAML as settings need it: whatever could be read as something else than was meant is an error."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from agentlite.core.plain_words import utf8_text

TAG = "tag:yaml.org,2002:"
UNKNOWN_TO_JSON = ("binary", "omap", "pairs", "set")


def read(path: Path) -> Any:
    """A loader of a file's text, which raises yaml.YAMLError. Raises UserError 2, and OSError."""
    return loader(utf8_text(path.read_bytes(), str(path)))


def loader(text: str) -> Any:
    """A loader of a text: libyaml's, which is quicker, where it is there."""
    return _strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader))(text)


@cache
def _strict(base: Any) -> Any:
    class Strict(base):  # type: ignore[misc]  # one of two
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

    Strict.add_constructor(f"{TAG}int", Strict.whole_number)
    Strict.add_constructor(f"{TAG}float", Strict.number)
    Strict.add_constructor(f"{TAG}timestamp", Strict.construct_yaml_str)  # JSON has no dates
    for kind in UNKNOWN_TO_JSON:
        Strict.add_constructor(f"{TAG}{kind}", Strict.construct_undefined)
    return Strict


def _mistake(problem: str, node: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)
