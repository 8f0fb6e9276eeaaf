"""--print-job: every command under every scheduler, with the very words that were typed."""

import subprocess
from pathlib import Path

import click
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.printed_jobs import SCHEDULERS, printed, ran, script_of

from agentlite.cli.jobs import quoted, store_name
from agentlite.cli.main import group
from agentlite.cli.stage_options import without_option
from agentlite.config import gpu_profiles
from agentlite.config.pipeline import STAGES, typed

# what shells, YAML and schedulers take for something of their own
NASTY = st.text(
    st.sampled_from(list("ab $'\"\\`!#*?[]{}()<>|&;~=%:,-\t\n\r\x85\u2028é中\x07\x1b🙂"))
    | st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
    min_size=1,
    max_size=12,
) | st.sampled_from(
    ["${{ secrets.x }}", "$$", "${HOME}", "$(id)", "`id`", "JOB", "'JOB'", "--print-job", "\nJOB\n"]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "my project"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in ("AGENTLITE_RUN", "HF_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    (here / "rows.jsonl").write_text("{}\n")
    (here / "grid.yaml").write_text("a: 1\n")
    (here / "agentlite-0.1.0-py3-none-any.whl").write_bytes(b"")
    return here


def words_of(name: str) -> list[str]:
    """A command that lacks nothing."""
    more = {"prep": ["rows.jsonl"], "ablate": ["--grid", "grid.yaml"], "make": ["dialogs"]}
    return [*typed(name).split(), *more.get(name, [])]


@given(st.lists(NASTY, min_size=1, max_size=20))
def test_bash_reads_back_what_was_quoted_from_one_line_of_printable_characters(words):
    line = " ".join(map(quoted, words))
    assert line.isprintable() and "${" not in line and "$$" not in line
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True).stdout
    assert shown.decode() == "".join(f"{word}\0" for word in words)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", STAGES)
def test_each_command_is_printed_and_nothing_is_written(name, scheduler, folder):
    before = sorted(folder.rglob("*"))
    result = printed(*words_of(name), scheduler=scheduler)
    assert result.exception is None, result.exception
    script = script_of(result.stdout, scheduler)
    assert f"agentlite {' '.join(words_of(name))}" in script
    assert subprocess.run(["bash", "-n"], input=script.encode()).returncode == 0
    assert sorted(folder.rglob("*")) == before


@pytest.mark.long
@settings(max_examples=examples(60))
@given(
    st.sampled_from(SCHEDULERS),
    st.lists(st.tuples(st.sampled_from(["--system", "--no-call-answer"]), NASTY), max_size=3),
    st.booleans(),
)
def test_the_script_hands_agentlite_the_very_words(tmp_path_factory, scheduler, options, joined):
    folder = tmp_path_factory.mktemp("job")
    words = ["prep", "rows.jsonl", "--run", "runs/the first"]
    for name, value in options:
        words += [f"{name}={value}"] if joined else [name, value]
    result = printed(*words, scheduler=scheduler)
    assert result.exception is None, result.exception
    done = ran(result.stdout, scheduler, folder, Path.cwd())
    assert (done.words, done.code, done.run) == (words, 0, "unset")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_workspace_that_the_environment_names_is_that_of_the_job(
    scheduler, folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("AGENTLITE_RUN", "runs/it's")
    result = printed("sft", scheduler=scheduler)
    monkeypatch.delenv("AGENTLITE_RUN")
    assert ran(result.stdout, scheduler, tmp_path, folder).run == "runs/it's"


@pytest.mark.long
@given(
    st.lists(st.tuples(st.just("--system"), NASTY), max_size=3),
    st.lists(st.sampled_from(["sky", "hf"]), min_size=1, max_size=2),
    st.data(),
)
def test_only_the_option_itself_is_taken_out_of_the_words(options, schedulers, data):
    command = group.get_command(click.Context(group), "prep")
    context = click.Context(command)
    words = [[name, value] for name, value in options]
    for scheduler in schedulers:
        forms = [["--print-job", scheduler], [f"--print-job={scheduler}"]]
        one = data.draw(st.sampled_from(forms))
        words.insert(data.draw(st.integers(0, len(words))), one)
    given_words = tuple(word for pair in words for word in pair)
    found = without_option(context, given_words, "--print-job", "print_job")
    assert list(found) == [word for pair in options for word in pair]


def test_the_storage_of_a_folder_has_one_name_that_every_scheduler_takes(folder):
    names = {store_name(Path(where)) for where in ("/a/b", "/a/B", "/b", "/", "/ü/中", "/a" * 90)}
    assert len(names) == 6
    for name in names:
        assert name == name.lower() and name.replace("-", "").isalnum() and name.isascii()
        assert len(name) <= 63 and "--" not in name
    stores = [yaml.safe_load(printed("sft", scheduler="sky").stdout)["file_mounts"]]
    stores += [yaml.safe_load(printed("dpo", scheduler="sky").stdout)["file_mounts"]]
    assert stores[0] == stores[1]


def test_an_unknown_scheduler_is_refused_with_the_known_ones():
    result = printed("sft", scheduler="kubernetes")
    assert "sky, slurm, dstack, hf" in str(result.exception)


def test_a_setting_that_does_not_exist_is_refused_before_anything_is_printed():
    result = printed("sft", "--set", "sft.no_such=1", scheduler="slurm")
    assert "no_such" in str(result.exception) and result.stdout == ""
