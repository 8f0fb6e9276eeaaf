"""agentlite.core.reject_codes: each row before has its code, and each row after is kept."""

import contextlib
import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.examples import sample
from support.samples import with_template

import agentlite
from agentlite.core.errors import RowError, UserError
from agentlite.core.reject_codes import CODES, explain
from agentlite.core.row_files import read_rows
from agentlite.data.formats import to_record
from agentlite.data.preferences import read_preferences
from agentlite.rendering import PROTOCOLS, renderer
from agentlite.rendering.template import Template

ELSEWHERE = ("E219", "E220")  # of pairs, and of another model's template
GOOD = (
    '{"conversations": [{"from": "user", "value": "What is rain?"}, '
    '{"from": "assistant", "value": "Water that falls."}]}'
)
# what is done to rows that are shown -> the bytes that are meant
HOW: dict[str, Callable[[str], bytes]] = {
    "": str.encode,
    "packed with gzip": lambda text: gzip.compress(text.encode()),
    "packed with gzip, and the last 12 bytes are missing": lambda text: gzip.compress(
        text.encode()
    )[:-12],
    "in Windows-1252": lambda text: text.encode("windows-1252"),
    "with a NUL byte for ␀": lambda text: text.replace("␀", "\0").encode(),
    "with 5,000 digits for …": lambda text: text.replace("…", "9" * 5000).encode(),
    "with 100 brackets for …": lambda text: text.replace("…", "[" * 100 + "]" * 100).encode(),
    "with 17 MiB of text for …": lambda text: text.replace("…", "y" * (17 << 20)).encode(),
    "with 100 words for …": lambda text: text.replace("…", "wet " * 100).encode(),
}


def codes(content: bytes, options: str, folder: Path) -> set[str]:
    """The codes of rows that are read with these options, and "kept"."""
    folder.mkdir()
    path = folder / "rows.jsonl"
    path.write_bytes(content)
    (folder / "held.jsonl").write_text(CODES["E104"].before, encoding="utf-8")
    words = shlex.split(options.replace("held.jsonl", str(folder / "held.jsonl")))
    given = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }
    settings = {"max_rejects": 1.0, "dev": 0.0, "test": 0.0, **given}
    with contextlib.suppress(UserError):  # where no row is left
        agentlite.prep(str(path), run=str(folder), **settings)
    files = [folder / "prep" / f"{name}.jsonl" for name in ("rejects", "provenance")]
    rows = [row for file in files if file.exists() for row in read_rows(file)]
    return {row.get("code", "kept") for row in rows}


@pytest.mark.parametrize("code", sample(24, [code for code in CODES if code not in ELSEWHERE]))
def test_the_row_before_has_the_code_and_the_row_after_is_kept(code: str, tmp_path: Path) -> None:
    known = CODES[code]
    alone = code in ("E104", "E105")  # of a file
    # the last row of a file may be cut, which has a code of its own
    end = "" if alone or code == "E122" else "\n"
    before, after = (
        text + end if alone else f"{GOOD}\n{text}{end}" for text in (known.before, known.after)
    )
    assert codes(HOW[known.how](before), known.options, tmp_path / "before") - {"kept"} == {code}
    assert codes(HOW[known.after_how](after), known.after_options, tmp_path / "after") == {"kept"}


def test_a_preference_before_has_its_code_and_the_one_after_is_read() -> None:
    with pytest.raises(RowError, match="E219"):
        [*read_preferences(json.loads(CODES["E219"].before))]
    assert len([*read_preferences(json.loads(CODES["E219"].after))]) == 1


def test_a_template_refuses_the_row_before_and_takes_the_row_after(smollm2: Template) -> None:
    template = with_template(smollm2, "tools")
    refuses = Template(
        "refuses",
        template.tokenizer,
        "{% for message in messages %}{% if '<think>' in message.content %}"
        "{{ raise_exception('no thoughts') }}{% endif %}{% endfor %}" + template.source,
        template.special,
    )
    for text, code in ((CODES["E220"].before, "E220"), (CODES["E220"].after, "")):
        record, found = to_record(json.loads(text)), ""
        try:
            renderer.render(record, PROTOCOLS["hermes"], refuses)
        except RowError as error:
            found = error.code
        assert found == code


def test_every_code_has_an_example_that_can_be_printed() -> None:
    for code in CODES:
        text = explain(code)
        assert all(sign.isprintable() or sign == "\n" for sign in text)
        assert "Before: agentlite " in text and "After: agentlite " in text
        assert len(text) < 5000


def test_explain_names_the_nearest_code() -> None:
    with pytest.raises(UserError, match="Did you mean 'E2"):
        explain("E266")
