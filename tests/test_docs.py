"""The pages say what is so: help as it is printed, command lines that can be typed, links that lead
somewhere.
"""

import ast
import json
import re
import shlex
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.samples import ROOT

from agentlite.cli.main import COMMANDS, group
from agentlite.config.pipeline import MADE
from agentlite.config.pipeline import typed as as_typed

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
NOTEBOOK = DOCS / "first.ipynb"
FENCED = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(agentlite [^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OPERATORS = "();<>|&\n"

sys.path.insert(0, str(ROOT / "scripts"))


def code(page: Path) -> str:
    """What stands in its blocks, fenced or indented, and the commands in its sentences; long lines
    joined.
    """
    text = page.read_text(encoding="utf-8")
    rest = FENCED.sub("", text)
    indented = [line for line in rest.splitlines() if line.startswith("    ")]
    return "\n".join([*FENCED.findall(text), *indented, *INLINE.findall(rest)]).replace("\\\n", " ")


def typed(text: str) -> Iterator[list[str]]:
    """The words after `agentlite`, of each command of a shell that is one of ours: also behind a
    pipe, or torchrun.
    """
    for line in text.splitlines():
        if not re.search(r"\bagentlite +[-a-z]", line) or line.startswith("Usage:"):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
        lexer.whitespace_split, command = True, list[str]()
        for token in [*lexer, ";"]:
            if set(token) <= set(OPERATORS):
                names = [
                    place
                    for place, word in enumerate(command)
                    if word.rpartition("/")[2] == "agentlite"
                ]
                if names and "pip" not in command:
                    yield command[names[0] + 1 :]
                command = []
            else:
                command.append(token)


def misread(words: list[str]) -> str:
    """Why the command line would not take these words; "" if it would."""
    if not words or words[0].startswith("-") or words[0] == "COMMAND":
        return ""
    if words[0] == "make" and words[1:2] and words[1] in MADE:
        words = words[1:]
    if words[0] not in COMMANDS:
        return f"no command {words[0]}"
    # click keeps a command's help option, by the names that its first context inherits
    inherited = click.Context(group, **group.context_settings)
    command = group.get_command(inherited, words[0])
    assert command
    given = [word for word in words[1:] if word != "..."]
    try:
        _, left, _ = command.make_parser(click.Context(command, parent=inherited)).parse_args(given)
    except click.UsageError as error:
        return error.format_message()
    return f"{left[0]} is too much" if left else ""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def notebook_lines() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [
        line
        for cell in cells
        if cell["cell_type"] == "code"
        for line in "".join(cell["source"]).splitlines()
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_page_with_its_help_as_it_is(name):
    from help_pages import block, renewed

    text = (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# agentlite {as_typed(name)}\n\n")
    assert block(name) in text, "python scripts/help_pages.py renews it"
    assert renewed(text, name) == text


def test_pages_are_renewed_where_the_help_has_changed():
    from help_pages import block, renewed

    page = "# agentlite plan\n\nSays what.\n\n## More\n\nText.\n"
    new = renewed(page, "plan")
    assert new == page.replace("\n## More", f"\n{block('plan')}\n## More")
    assert renewed(new.replace("--fit 12GB", "--fits 12GB"), "plan") == new


def test_there_is_no_page_without_a_command():
    assert {path.stem for path in (DOCS / "commands").glob("*.md")} == set(COMMANDS)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "mistakes"], ids=name)
def test_each_line_of_a_page_can_be_typed(page):
    assert not [
        f"agentlite {' '.join(words)}: {problem}"
        for words in typed(code(page))
        if (problem := misread(words))
    ]


def test_lines_are_found_and_mistakes_in_them():
    assert sum(len([*typed(code(page))]) for page in PAGES) > 80
    line = (
        "cat x | VAR=1 .venv/bin/agentlite prep - --json > out; torchrun -m -- agentlite sft  "
        "# "
        "agentlite x"
    )
    assert [*typed(line)] == [["prep", "-", "--json"], ["sft"]]
    for wrong in (
        ["prepare"],
        ["sft", "--lora-rank", "8"],
        ["sft", "data.jsonl"],
        ["eval", "--model"],
    ):
        assert misread(wrong), wrong


def anchors(page: Path) -> set[str]:
    """The addresses that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)", FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    missing = []
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if ":" in path or (target.exists() and (not anchor or anchor in anchors(target))):
            continue
        missing.append(link)
    assert not missing


def test_the_first_page_leads_to_the_commands_and_to_installing():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {"docs/commands/", "docs/install.md"} <= set(LINK.findall(text))


def test_the_notebook_is_made_of_the_readme_and_needs_no_upload():
    from notebook import cells, notebook

    assert NOTEBOOK.read_text(encoding="utf-8") == notebook(), "python scripts/notebook.py"
    assert "upload" not in "".join(source for _, source in cells()).lower()
    installed = [line for line in notebook_lines() if "pip install" in line]
    assert installed and not [line for line in installed if ".whl" in line or "/" in line]


def test_the_notebook_is_one_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5) and notebook["metadata"][
        "kernelspec"
    ]["name"]
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)
    shapes = {
        "markdown": {"cell_type", "id", "metadata", "source"},
        "code": {"cell_type", "id", "metadata", "source", "execution_count", "outputs"},
    }
    for cell in notebook["cells"]:
        assert set(cell) == shapes[cell["cell_type"]]
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        assert cell["cell_type"] != "code" or (
            cell["outputs"] == [] and cell["execution_count"] is None
        )
    ast.parse("\n".join(line for line in notebook_lines() if not line.startswith(("!", "%"))))


def test_the_lines_of_the_notebook_can_be_typed():
    told = [words for line in notebook_lines() if line.startswith("!") for words in typed(line[1:])]
    assert [words[0] for words in told if words[0] != "runs"] == [
        "doctor",
        "init",
        "prep",
        "sft",
        "eval",
        "chat",
        "export",
    ]
    assert not [problem for words in told if (problem := misread(words))]


PATH = re.compile(r"`((?:[\w.*-]+/)*[\w.*-]+\.py|(?:[\w-]+/)+)`")
ELSEWHERE = {"decisions.md", "CHANGELOG.md"}  # they tell of files as they were called then


def source_files(page: Path) -> list[str]:
    """The Python files and the folders of this repository that a page names in its sentences."""
    named = PATH.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    tops = {path.name for folder in (ROOT, ROOT / "agentlite") for path in folder.iterdir()}
    return [path for path in named if path.startswith("test_") or path.partition("/")[0] in tops]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in ELSEWHERE], ids=name)
def test_the_files_that_a_page_names_are_there(page):
    for path in source_files(page):
        assert [*ROOT.glob(path), *(ROOT / "agentlite").glob(path)], path


STATES = ("works", "ours differs", "planned", "not planned", "not yet")


def seed_rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Lines, item, state and proof of each row of the tables of docs/seeds.md."""
    for line in text.splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split(" |"))
        if line.startswith("| ") and cells[0] != "lines":
            lines, item, state, proof = cells
            yield lines, item, state, proof


def missing_proof(proof: str) -> list[str]:
    """The tests, recipes and scripts of a cell that this repository does not have."""
    missing = []
    for named in re.findall(r"`(tests/[^`]+)`", proof):
        path, _, function = named.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if not re.search(rf"^ *def {re.escape(function)}\(", source, re.MULTILINE):
            missing.append(named)
    files = re.findall(r"scripts/[\w./-]+", proof)
    files += [f"configs/{recipe}" for recipe in re.findall(r"recipes/[\w.-]+", proof)]
    return missing + [file for file in files if not (ROOT / file).is_file()]


def test_every_item_of_a_seed_has_a_state_and_a_proof_that_is_there():
    rows = [*seed_rows((DOCS / "seeds.md").read_text(encoding="utf-8"))]
    assert len(rows) > 100
    for lines, item, state, proof in rows:
        assert re.fullmatch(r"[\d, -]+( with \d+)?", lines) and item, lines
        assert state.startswith(STATES), item
        assert proof or state.startswith(("planned", "not ")), item
        assert "(decisions.md" in state or "(rewards.md" in state or "differs" not in state, item
        assert not missing_proof(proof), item


def test_a_proof_that_is_not_there_is_seen():
    here = "`tests/test_docs.py::test_a_proof_that_is_not_there_is_seen`; `bash scripts/demo.sh`"
    assert missing_proof(f"{here}; `agentlite sft --config recipes/demo.yaml`") == []
    for proof in (
        "`tests/test_docs.py::test_a_proof`",
        "`tests/test_docs.py`",
        "`tests/test_other.py::test_x`",
        "`agentlite sft --config recipes/other.yaml`",
        "`bash scripts/other.sh`",
    ):
        assert len(missing_proof(proof)) == 1, proof


@pytest.mark.long
def test_the_tree_of_the_design_page_is_the_package_as_it_is():
    from file_tree import block, renewed

    text = (DOCS / "design.md").read_text(encoding="utf-8")
    assert block() in text, "python scripts/file_tree.py renews it"
    assert renewed(text.replace("    errors.py", "    mistakes.py")) == text


def retired_words() -> set[str]:
    """The last column of the glossary: words that are not used for what stands in the row."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row[-1])}


def words_of(identifier: str) -> set[str]:
    """`_told_apart`, `toldApart` or `TOLD` -> told, apart; and the whole, in lower case."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)
    return {word.lower() for word in [*words, identifier.strip("_")]}


@pytest.mark.long
def test_no_identifier_holds_a_word_that_the_glossary_retires():
    retired, met = retired_words(), []
    assert retired
    for path in (ROOT / "agentlite").rglob("*.py"):
        with path.open("rb") as file:
            met += [
                f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.NAME and words_of(token.string) & retired
            ]
    assert not met


def test_the_image_installs_what_is_there_with_the_tested_set():
    """No engine builds it here: what it copies exists, and extras and pins are the project's."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied and not [word for word in copied if not (ROOT / word).exists()]
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{word}" for word in copied} <= {*allowed}
    text = "\n".join(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    assert {*extras.split(",")} <= project["optional-dependencies"].keys()
    # torch's wheels of this series hold CUDA 13, as the image's name says
    assert text.count("-c constraints.txt") == 3 and "nvidia/cuda:13." in text
    (override,) = re.findall(r'"(certifi>=[\d.]+)"', text)
    assert override in (ROOT / "scripts/setup.sh").read_text(encoding="utf-8")


def test_the_devcontainer_is_json_and_runs_what_is_there():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    shell, script = container["postCreateCommand"].split()
    assert shell == "bash" and (ROOT / script).exists()


def test_the_metadata_says_what_an_index_shows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["description"]) <= 100 and (ROOT / project["readme"]).exists()
    named = {line.rsplit(" ", 1)[1] for line in project["classifiers"] if "Python :: 3." in line}
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    assert named == {f"3.{minor}" for minor in range(int(low), int(high))}
