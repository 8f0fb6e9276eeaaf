"""agentlite.data.reject_examples: each row before has its code, and each row after is kept."""

import contextlib
import json
import shlex
from pathlib import Path

import pytest
from support.examples import sample
from support.samples import with_template

import agentlite
from agentlite.core.errors import RowError, UserError
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import read_rows
from agentlite.data.formats import to_record
from agentlite.data.preferences import read_preferences
from agentlite.data.reject_examples import EXAMPLES, HOW, PLAIN, example_of, sharegpt
from agentlite.rendering import PROTOCOLS, renderer
from agentlite.rendering.template import Template

ELSEWHERE = ("E219", "E220")  # of pairs, and of another model's template
GOOD = sharegpt(("user", "What is rain?"), ("assistant", "Water that falls."))


def codes(content: bytes, options: str, folder: Path) -> set[str]:
    """The codes of rows that are read with these options, and "kept"."""
    folder.mkdir()
    path = folder / "rows.jsonl"
    path.write_bytes(content)
    (folder / "held.jsonl").write_text(PLAIN, encoding="utf-8")
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
    one = EXAMPLES[code]
    alone = code in ("E104", "E105")  # of a file
    before, after = (text if alone else f"{GOOD}\n{text}" for text in (one.before, one.fixed))
    # the last row of a file may be cut, which has a code of its own
    end = "" if code in ("E104", "E105", "E122") else "\n"
    assert codes(HOW[one.how](before + end), one.options, tmp_path / "before") - {"kept"} == {code}
    fixed_how = one.fixed_how or (one.how if "…" in one.fixed else "")
    options = one.options if one.fixed_options is None else one.fixed_options
    assert codes(HOW[fixed_how](after + end), options, tmp_path / "after") == {"kept"}


def test_a_preference_before_has_its_code_and_the_one_after_is_read() -> None:
    with pytest.raises(RowError, match="E219"):
        [*read_preferences(json.loads(EXAMPLES["E219"].before))]
    assert len([*read_preferences(json.loads(EXAMPLES["E219"].fixed))]) == 1


def test_a_template_refuses_the_row_before_and_takes_the_row_after(smollm2: Template) -> None:
    template = with_template(smollm2, "tools")
    refuses = Template(
        "refuses",
        template.tokenizer,
        "{% for message in messages %}{% if '<think>' in message.content %}"
        "{{ raise_exception('no thoughts') }}{% endif %}{% endfor %}" + template.source,
        template.special,
    )
    for text, code in ((EXAMPLES["E220"].before, "E220"), (EXAMPLES["E220"].fixed, "")):
        record, found = to_record(json.loads(text)), ""
        try:
            renderer.render(record, PROTOCOLS["hermes"], refuses)
        except RowError as error:
            found = error.code
        assert found == code


def test_every_code_has_an_example_that_can_be_printed() -> None:
    assert [*EXAMPLES] == [*CODES]
    for code in CODES:
        text = example_of(code)
        assert text.isascii() or all(sign.isprintable() or sign == "\n" for sign in text)
        assert "Before: agentlite " in text and "After: agentlite " in text
        assert len(text) < 4000


def test_explain_names_the_nearest_code() -> None:
    from agentlite.core.reject_codes import explain

    with pytest.raises(UserError, match="Did you mean 'E2"):
        explain("E266")
