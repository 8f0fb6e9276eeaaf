"""The pages say what is so: commands that can be typed, links and files that are there, seeds; and
they make a site.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from click.testing import CliRunner
from support.processes import environment
from support.samples import ROOT

from agentlite.cli.main import COMMANDS, _command, group
from agentlite.config.pipeline import MAKE_COMMANDS
from agentlite.config.resolve import UserSettings, resolve
from agentlite.config.settings import COMMANDS as STAGES
from agentlite.config.settings import PreferenceLoss, fields
from agentlite.core.errors import NAMES, UserError
from agentlite.data.formats import FORMATS
from agentlite.environments.synthesis.blueprint import KINDS
from agentlite.rendering import PROTOCOLS
from agentlite.scoring.rewards import WEIGHTS
from agentlite.workspace.lookup import Result

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    DOCS / "llms.txt",
]
WRITTEN = [path.name for path in DOCS.glob("*.md")]
FENCED = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(agentlite [^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OPERATORS = "();<>|&\n"
# of pip, uv, cmake, git, jq, nvidia-smi, torchrun, llama.cpp and vLLM; and a placeholder
OF_OTHERS = {
    f"--{name}"
    for name in [
        "all",
        "build",
        "depth",
        "host",
        "its-name",
        "jinja",
        "no-deps",
        "nproc",
        "outfile",
    ]
}
OF_OTHERS |= {"--query-gpu", "--reinstall", "--slurpfile", "--target", "--version", "--help"}
OF_OTHERS |= {"--python"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code(page: Path) -> str:
    """The blocks of a page and the commands in its sentences; long lines joined."""
    rest = FENCED.sub("", text_of(page))
    indented = [line for line in rest.splitlines() if line.startswith("    ")]
    blocks = FENCED.findall(text_of(page))
    return "\n".join([*blocks, *indented, *INLINE.findall(rest)]).replace("\\\n", " ")


def typed(text: str) -> Iterator[list[str]]:
    """The words after `agentlite` of each command in a shell: also behind a pipe, or torchrun."""
    for line in text.splitlines():
        if not re.search(r"\bagentlite +[-a-z]", line) or line.startswith("Usage:"):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
        lexer.whitespace_split, command = True, list[str]()
        for token in [*lexer, ";"]:
            if set(token) <= set(OPERATORS):
                names = [n for n, word in enumerate(command) if word.split("/")[-1] == "agentlite"]
                if names and "pip" not in command:
                    yield command[names[0] + 1 :]
                command = []
            else:
                command.append(token)


def misread(words: list[str]) -> str:
    """Why the command line would not take these words; "" if it would."""
    if not words or words[0].startswith("-") or words[0] in ("COMMAND", "X"):
        return ""
    if words[0] == "make" and words[1:2] and words[1] in MAKE_COMMANDS:
        words = words[1:]
    if words[0] not in COMMANDS:
        return f"no command {words[0]}"
    # click keeps a command's help option, by the names that its first context inherits
    inherited = click.Context(group, **group.context_settings)
    command = group.get_command(inherited, words[0])
    assert command
    given = [word for word in words[1:] if word != "..."]
    try:
        parser = command.make_parser(click.Context(command, parent=inherited))
        options, left, _ = parser.parse_args(given)
        if words[0] in STAGES:
            known = {key: value for key, value in options.items() if key in fields(words[0])}
            flags = {key: one for key, one in known.items() if isinstance(one, str)}
            flags |= {key: (*one,) for key, one in known.items() if isinstance(one, list)}
            resolve(words[0], UserSettings(flags, sets=tuple(options.get("sets", ()))))
    except (click.UsageError, UserError) as error:
        return str(error)
    return f"{left[0]} is too much" if left else ""


def test_each_command_of_the_pages_and_of_help_can_be_typed() -> None:
    pages = {page.name: code(page) for page in PAGES}
    del pages["mistakes.md"]  # shows what is wrong
    pages |= {f"{name} --help": command.examples for name, command in COMMANDS.items()}
    pages["--help"] = re.sub(r"(?<=\w)  .*", "", str(group.help))  # what a command does
    lines = [(name, words) for name, text in pages.items() for words in typed(text)]
    wrong = [(name, *words, why) for name, words in lines if (why := misread(words))]
    assert len(lines) > 80 and not wrong
    assert misread(["sft", "--lora-rank", "8"]) and misread(["prepare"])


def test_the_page_for_programs_has_every_exit_code_and_every_key_of_a_result() -> None:
    text = text_of(DOCS / "llms.txt")
    codes = text.partition("## Exit codes")[2]
    assert all(re.search(rf"\b{code} [a-z]", codes) for code in NAMES)
    keys = re.findall(r'"(\w+)"', text[text.index("A stage: {") : text.index("An error: {")])
    assert set(Result.__struct_fields__) <= set(keys)


def anchors(page: Path) -> set[str]:
    """The addresses that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)", FENCED.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_and_files_that_the_pages_name_are_there() -> None:
    missing = []
    for page in PAGES:
        prose = FENCED.sub("", text_of(page))
        for link in LINK.findall(prose):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            there = ":" in path or (target.exists() and (not anchor or anchor in anchors(target)))
            missing += [] if there else [f"{page.name}: {link}"]
        for path in re.findall(r"`((?:scripts|configs|tests|docs)/[\w./-]+)", prose):
            missing += [] if (ROOT / path.rstrip(".")).exists() else [f"{page.name}: {path}"]
    assert not missing


def test_each_option_that_the_code_names_can_be_typed() -> None:
    """In errors, hints and next commands; `OF_OTHERS` are options of other programs."""
    typed = {name for command in COMMANDS for one in _command(command).params for name in one.opts}
    named = {
        option
        for path in (ROOT / "agentlite").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", node.value)
    }
    assert len(named) > 80 and not named - typed - OF_OTHERS


def test_the_code_names_pages_that_are_there() -> None:
    for folder in ("agentlite", "scripts", "configs", "tests"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".sh", ".yaml", ".js"):
                for name in re.findall(r"\bdocs/([\w/]+\.md)", text_of(path)):
                    assert name.startswith("commands/") or (DOCS / name).exists(), (path, name)


def test_the_words_stay_few() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 1000
    assert sum(len(text_of(page).split()) for page in PAGES) <= 40_000


def seed_rows() -> Iterator[tuple[str, str, str, str]]:
    """Lines, item, state and proof of each row of docs/seeds.md."""
    for line in text_of(DOCS / "seeds.md").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        if line.startswith("| ") and cells[0] != "lines":
            lines, item, state, proof = cells
            yield lines, item, state, proof


def missing_proofs(proof: str) -> list[str]:
    """The tests and files of a cell that this repository does not have."""
    missing = []
    for named in re.findall(r"`(tests/[^`]+)`", proof):
        path, _, function = named.partition("::")
        source = text_of(ROOT / path) if (ROOT / path).is_file() else ""
        if not re.search(rf"^ *def {re.escape(function)}\(", source, re.MULTILINE):
            missing.append(named)
    files = re.findall(r"scripts/[\w./-]+", proof)
    files += [f"configs/{recipe}" for recipe in re.findall(r"recipes/[\w.-]+", proof)]
    return missing + [file for file in files if not (ROOT / file).is_file()]


def test_every_item_of_a_seed_has_a_state_and_a_proof_that_is_there() -> None:
    rows = [*seed_rows()]
    assert len(rows) > 100
    missing = [named for *_, proof in rows for named in missing_proofs(proof)]
    assert not missing
    for _, item, state, proof in rows:
        assert state.startswith(("works", "ours differs", "not planned", "not yet")), item
        assert proof or state.startswith("not "), item


ROWS = ROOT / "tests/support/rows"
FILES = {  # of the seeds' commands: a file here, or the lines of one
    "agent_sft.jsonl": ("formats/sage_sft.jsonl", None),
    "agent_tools.jsonl": ("formats/sage_tools.jsonl", None),
    "agent_benchmark.jsonl": ("formats/sage_benchmark.jsonl", None),
    "react.jsonl": ("seeds/seed_003.jsonl", 0),
    "kuaiagent.jsonl": ("seeds/seed_003.jsonl", 1),
    "ms_agent.jsonl": ("seeds/seed_004.jsonl", 0),
    "ms_agent.json": ("seeds/seed_004.jsonl", 0),
    "swift.jsonl": ("seeds/seed_004.jsonl", 0),
    "fire.jsonl": ("seeds/seed_004.jsonl", 1),
    "self_cognition.jsonl": ("formats/self_cognition.jsonl", None),
    "chat.jsonl": ("formats/alpaca.jsonl", None),
    "bench.jsonl": ("formats/bfcl.jsonl", None),
    "agent.jsonl": ("weather.jsonl", None),
    "rows.jsonl": ("weather.jsonl", None),
}
NEEDS_A_RUN = {"ID", "base", "preferences.jsonl", "--dry-run"}


@pytest.mark.long
def test_the_commands_of_the_seeds_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need a finished run are only parsed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    for name, (source, number) in FILES.items():
        lines = text_of(ROWS / source).splitlines(keepends=True)
        chosen = lines if number is None else [lines[number]]
        if name.endswith(".json"):
            chosen = [json.dumps(json.loads(chosen[0]), ensure_ascii=False, indent=2)]
        (tmp_path / name).write_text("".join(chosen), encoding="utf-8")
    cells = [proof for *_, proof in seed_rows()]
    commands = [words for proof in cells for words in typed("\n".join(INLINE.findall(proof)))]
    assert len(commands) > 40 and not [words for words in commands if misread(words)]
    for number, words in enumerate(commands):
        if not NEEDS_A_RUN & {*words}:
            run = [] if "--formats" in words else ["--run", str(tmp_path / f"run-{number}")]
            few = ["--max-rejects", "1"] if words[0] == "prep" else []
            done = CliRunner().invoke(group, [*words, *run, *few])
            assert not done.exit_code, (words, done.output)


def menu(entry: Any) -> Iterator[str]:
    """The pages of an entry of `nav`: a page, or a title with a page or more entries."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from menu(inner)


def test_every_page_is_in_the_menu_once_and_in_the_index() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    helped = [f"commands/{name}.md" for name in COMMANDS]
    assert sorted(menu(nav)) == sorted([*WRITTEN, *helped])
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert not [name for name in WRITTEN if name != "index.md" and f"({name})" not in index]


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    left_out = shutil.ignore_patterns("commands")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=left_out)
    helped = [sys.executable, str(ROOT / "scripts/help_pages.py"), "docs"]
    subprocess.run(helped, cwd=tmp_path, check=True, env=environment())
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)
    assert "No issues found" in printed, re.findall(r"\S+\.md:\S+|.*does not exist", printed)
    for name in [*WRITTEN, *(f"commands/{name}.md" for name in COMMANDS)]:
        page = "index.html" if name == "index.md" else f"{name.removesuffix('.md')}/index.html"
        assert (tmp_path / "site" / page).is_file(), page


def test_tables_name_what_there_is() -> None:
    there = {
        "data.md": [*FORMATS, *PROTOCOLS],
        "environments.md": KINDS,
        "rewards.md": [*WEIGHTS, *get_args(PreferenceLoss)],
    }
    for page, names in there.items():
        text = text_of(DOCS / page)
        assert not [name for name in names if f"`{name}`" not in text], page


def test_the_image_copies_what_is_there() -> None:
    lines = text_of(ROOT / "Dockerfile").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied and not [word for word in copied if not (ROOT / word).exists()]
