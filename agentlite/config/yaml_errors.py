"""PyYAML's error about a settings file -> the line of the mistake, and the mistake in words."""

from pathlib import Path

from agentlite.core.console import pointed
from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text

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


def in_words(error: Exception) -> tuple[str, str]:
    """Names the mistake, and its fix. `error`: of PyYAML, of strict_yaml, or a RecursionError."""
    problem = str(getattr(error, "problem", "") or "nested too deep")
    otherwise = SIGN if problem.startswith(THEIRS) else (problem, "")
    return next((plain for theirs, plain in PROBLEMS.items() if theirs in problem), otherwise)


def yaml_error(path: Path, error: Exception) -> UserError:
    """`error`: of PyYAML."""
    # where what is not closed began, or else where reading stopped
    problem = str(getattr(error, "problem", ""))
    context = str(getattr(error, "context", ""))
    begun = "context_mark" if "quoted" in context or "flow" in context else "problem_mark"
    mark = getattr(error, begun, None)
    words, fix = in_words(error)
    if mark is None:
        return UserError(f"invalid YAML: {words}.", fix, location=str(path))
    text = utf8_text(path.read_bytes(), str(path)).splitlines()
    number, at = mark.line, mark.column
    while number and (number >= len(text) or not text[number].strip()):
        number -= 1  # at the end of the file: what is missing is missing behind the last line
        at = len(text[number]) if number < len(text) else 0
    line = text[number] if text else ""
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
