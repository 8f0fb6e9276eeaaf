"""YAML as settings need it: what could be read as something else than was meant is an error, and
every error shows the line of the mistake and says it in words.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from agentlite.core.console import pointed
from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text

TAG = "tag:yaml.org,2002:"
UNKNOWN_TO_JSON = ("binary", "omap", "pairs", "set")
INDENTATION = ("the indentation is wrong", "Indent the settings of a command alike, by two spaces.")
# libyaml's words for a mistake -> what it mostly is, and what to do
PROBLEMS = {
    "mapping values are not allowed": ("a text with a colon has no quotes", "Put it in quotes."),
    "did not find expected key": INDENTATION,
    "cannot start any token": (
        "a character that cannot begin a value",
        "Put the text in quotes.",
    ),
    "unexpected end of stream": ("a quote or a bracket is not closed", "Close it."),
    "expected node content": ("a value is missing, or a bracket is not closed", "Add it."),
    "could not find expected ':'": ("a colon is missing", "Write it as `key: value`."),
    "did not find expected ',' or": ("a bracket is not closed", "Close it, or add a comma."),
    "expected <block end>": INDENTATION,
    "undefined alias": ("a text that begins with * has no quotes", "Put it in quotes."),
    "unknown escape": ("a backslash in double quotes", "Write it twice, or take single quotes."),
}
# how its words begin where a text without quotes holds a sign that YAML reads
THEIRS = ("found ", "did not find ", "could not ", "mapping ", "block ", "expected ")
SIGN = ("a sign that YAML takes for its own", "Put the text in quotes.")
BEHIND = ("there is text behind a quote or a bracket", "Put all of it in quotes.")


def read(path: Path) -> Any:
    """The content of a file. Raises UserError 2."""
    text = ""
    try:
        text = utf8_text(path.read_bytes(), str(path))
        return parse(text)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}.", location=str(path)) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _at_its_line(path, text, error) from error


def parse(text: str) -> Any:
    """The content of a text. Raises yaml.YAMLError, or RecursionError."""
    # libyaml's loader is quicker, where it is there
    return _strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader))(text).get_single_data()


def in_words(error: Exception) -> tuple[str, str]:
    """Names the mistake, and its fix. `error`: of PyYAML, of Strict, or a RecursionError."""
    problem = str(getattr(error, "problem", "") or "nested too deep")
    otherwise = SIGN if problem.startswith(THEIRS) else (problem, "")
    return next((plain for theirs, plain in PROBLEMS.items() if theirs in problem), otherwise)


def _at_its_line(path: Path, text: str, error: Exception) -> UserError:
    # where what is not closed began, or else where reading stopped
    problem = str(getattr(error, "problem", ""))
    context = str(getattr(error, "context", ""))
    begun = "context_mark" if "quoted" in context or "flow" in context else "problem_mark"
    mark = getattr(error, begun, None)
    words, fix = in_words(error)
    if mark is None:
        return UserError(f"invalid YAML: {words}.", fix, location=str(path))
    lines = text.splitlines()
    number, at = mark.line, mark.column
    while number and (number >= len(lines) or not lines[number].strip()):
        number -= 1  # at the end of the file: what is missing is missing behind the last line
        at = len(lines[number]) if number < len(lines) else 0
    line = lines[number] if lines else ""
    column, indented = at, len(line) - len(line.lstrip())
    if "\t" in line[:indented]:
        words, fix = "the indentation contains a tab", "Use spaces."
    elif problem.startswith("mapping values") and ":" not in line[:column]:
        (words, fix), column = INDENTATION, indented
    elif (words, fix) == INDENTATION and column > indented:
        words, fix = BEHIND
    shown = [f"  | {one}" for one in pointed(line, column, column + 1)]
    return UserError(
        "\n".join([f"invalid YAML: {words}.", *shown]),
        fix,
        location=f"{path}:{number + 1}",
    )


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
