"""The figures that prep writes, counted by hand; and a dry run that says what the run then does."""

import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.samples import DATA

from agentlite import prep
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, from_row
from agentlite.core.row_files import read_rows
from agentlite.data.curation.coreset import wording
from agentlite.rendering import choose, training_rows
from agentlite.rendering.encoding import IGNORED
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import read_plan

OPTIONS: dict[str, Any] = {"model": "smollm2-135m", "dev": 0.2, "test": 0.3, "max_rejects": 0.5}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Good rows, one of them twice, and one that is not JSON."""
    lines = (DATA / "weather.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "rows.jsonl").write_bytes(b"".join([*lines, lines[0], b"no JSON\n"]))
    return tmp_path / "rows.jsonl"


def test_a_dry_run_says_what_the_run_then_says_and_writes_nothing(rows, tmp_path):
    dry = prep(str(rows), run=str(tmp_path / "run"), dry_run=True, **OPTIONS)
    assert dry.status == "dry run" and not (tmp_path / "run").exists() and dry.outputs == []
    done = prep(str(rows), run=str(tmp_path / "run"), **OPTIONS)
    said = {key: value for key, value in done.figures.items() if key in dry.figures}
    assert (
        dry.figures == {"folder": "new", **said}
        and {"kept", "read", "rejects", "by_file"} <= dry.figures.keys()
    )


def test_the_figures_add_up_and_are_those_of_the_files(rows, tmp_path):
    done = prep(str(rows), run=str(tmp_path / "run"), **OPTIONS)
    figures, folder = done.figures, tmp_path / "run/prep"
    count = len(rows.read_bytes().splitlines())
    assert (figures["read"], figures["rejected"], figures["duplicates"]) == (count, 1, 1)
    assert figures["kept"] == count - 2
    for split in ("train", "dev", "test"):
        found = [*read_rows(folder / f"{split}.jsonl")]
        assert len(found) == figures[split] and {row["split"] for row in found} <= {split}
    assert figures["train_rows"] >= figures["train"] > 0 and figures["trained_tokens"] > 0
    ends = Counter(row["end"] for row in read_rows(folder / "provenance.jsonl"))
    assert ends["kept"] == count - 2 and ends.total() == count - 1
    assert set(done.outputs) == {path.name for path in folder.glob("[!.]*.json*")} - {
        "plan.json",
        "done.json",
    }
    stats = json.loads((folder / "stats.json").read_bytes())
    assert {key: stats[key] for key in figures} == figures and "notes" in stats
    assert done.next == f"agentlite sft --run {tmp_path / 'run'}"
    other = prep(str(rows), run=str(tmp_path / "run"), out="b", **OPTIONS)
    assert other.next == f"agentlite sft --data b --run {tmp_path / 'run'}"
    (tmp_path / "run/sft").mkdir()
    (tmp_path / "run/sft/plan.json").touch()
    again = prep(str(rows), run=str(tmp_path / "run"), out="b", force=True, **OPTIONS)
    assert again.next == f"agentlite sft --data b --out sft-b --run {tmp_path / 'run'}"


def test_kept_rows_that_teach_a_mistake_are_named_with_their_places(rows, tmp_path, capsys):
    lines = [json.loads(line) for line in rows.read_bytes().splitlines()[:3]]
    for number, line in enumerate(lines):
        line["messages"][0]["content"] += f" Say {number}."
        line["messages"][-1] = {"role": "assistant", "content": "TODO: write it"}
    lines.append(lines[0])  # a copy, and not kept
    rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = prep(str(rows), run=str(tmp_path / "run"), **OPTIONS)
    assert done.figures["doubts"] == {"placeholder": 3}
    said = capsys.readouterr().err
    assert f"{rows}:1: an answer holds a placeholder: 'TODO:'; write what belongs there" in said
    assert f"(also lines 2 and 3 of {rows})" in said


def test_every_written_record_has_one_row_of_measures(rows, tmp_path):
    template = load_template("smollm2-135m")
    for out, options in (("plain", {}), ("variants", {"mask_names": 1.0, "no_call_share": 0.9})):
        done = prep(str(rows), run=str(tmp_path / "run"), out=out, **OPTIONS, **options)
        folder = tmp_path / "run" / out
        measures = list(read_rows(folder / "measures.jsonl"))
        mixture = choose(read_plan(folder).settings["protocol"], template)
        records = [
            from_row(row) for split in SPLITS for row in read_rows(folder / f"{split}.jsonl")
        ]
        assert [(row["id"], row["split"]) for row in measures] == [
            (record.id, record.split) for record in records
        ]
        for row, record in zip(measures, records, strict=True):
            encoded = training_rows(record, mixture.protocol_of(record), template)
            assert row["tokens"] == sum(len(one.input_ids) for one in encoded)
            assert row["longest_row"] == max(len(one.input_ids) for one in encoded)
            assert row["trained_tokens"] == sum(
                label != IGNORED for one in encoded for label in one.labels
            )
            words = wording(record)
            assert row["proxy_loss"] == pytest.approx(words.proxy_loss, abs=1e-6)
            assert row["lexical_diversity"] == pytest.approx(words.lexical_diversity, abs=1e-6)
            assert "loss" not in row
        assert done.figures["tokens"]["all"] == sum(row["tokens"] for row in measures)
        in_train = [row for row in measures if row["split"] == "train"]
        assert done.figures["train_rows"] == len(in_train) < len(measures)
        assert done.figures["trained_tokens"] == sum(row["trained_tokens"] for row in in_train)


def test_too_many_rejects_leave_their_file_and_the_next_run_starts_over(rows, tmp_path):
    options = {**OPTIONS, "max_rejects": 0.0}
    bad = rows.read_bytes() + b"also no JSON\n"
    rows.write_bytes(bad)
    with pytest.raises(UserError, match=r"2 of .* rows rejected") as refused:
        prep(str(rows), run=str(tmp_path / "run"), **options)
    assert refused.value.exit_code == 4
    places = [row["location"] for row in read_rows(tmp_path / "run/prep/rejects.jsonl")]
    assert len(places) == 2 and all(place.startswith(str(rows)) for place in places)
    assert not (tmp_path / "run/prep/plan.json").exists()
    rows.write_bytes(bad.replace(b"also no JSON\n", b""))
    assert prep(str(rows), run=str(tmp_path / "run"), **options).status == "done"


def test_rows_of_stdin_are_an_input_by_their_content(rows, tmp_path, monkeypatch):
    def run() -> str:
        stream = io.TextIOWrapper(io.BytesIO(content))
        monkeypatch.setattr(sys, "stdin", stream)
        return prep("-", run=str(tmp_path / "run"), **OPTIONS).status

    content = rows.read_bytes()
    assert [run(), run()] == ["done", "up to date"]
    content = content.replace(b"no JSON", b"no json")
    with pytest.raises(UserError, match="input - "):
        run()
