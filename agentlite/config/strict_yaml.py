"""YAML as settings need it: whatever could be read as something else than was meant is an error."""

import stat
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text

LONGEST_FILE = 1 << 20
LONGEST_INTEGER = 64  # digits
DEEP = 500  # brackets; libyaml would end this process where a text is nested very deep
TAG = "tag:yaml.org,2002:"
UNKNOWN_TO_JSON = ("binary", "omap", "pairs", "set")


def read(path: Path) -> Any:
    """A loader of the text of a file. Raises UserError 2 for one that is too long, no file
    or not UTF-8, and OSError; the loader raises yaml.YAMLError.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise UserError(
            "is not a regular file: a pipe or a device may never end.",
            "Write the settings to a file.",
            location=str(path),
        )
    if found.st_size > LONGEST_FILE:
        raise UserError(
            f"is longer than {LONGEST_FILE >> 20} MiB: too long for a file of settings.",
            location=str(path),
        )
    return loader(utf8_text(path.read_bytes(), str(path)))


def loader(text: str) -> Any:
    """A loader of a text. libyaml's, which is quicker, unless the text is nested very deep."""
    nested = sum(map(text.count, ("[", "{", "? ", "- - ")))
    return _strict(
        yaml.SafeLoader if nested > DEEP else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )(text)


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
            if len(digits) > LONGEST_INTEGER:
                raise _mistake(f"a number of {len(digits)} digits", node)
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
