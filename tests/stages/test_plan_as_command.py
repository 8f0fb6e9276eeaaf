"""A plan as a command line: typed again, it makes the same plan."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from agentlite.cli.main import group
from agentlite.config import gpu_profiles
from agentlite.config.metavars import choices, metavar, without_marks
from agentlite.config.pipeline import typed
from agentlite.config.resolve import Given, plain_settings, resolve
from agentlite.config.settings import COMMANDS, fields
from agentlite.core.errors import UserError
from agentlite.stages.plan_as_command import as_command
from agentlite.workspace.stage_folder import Plan

TEXTS = st.text("ab,='$\" -{é", min_size=1, max_size=6).filter(lambda text: text.strip() == text)
NUMBERS = {"INT": st.integers(0, 99), "FLOAT": st.floats(0, 1, width=64)}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    plain = without_marks(kind)
    if known := choices(kind):
        one = st.sampled_from(known if plain is not bool else (True, False))
        return st.lists(one, min_size=1, max_size=2) if metavar(kind).endswith(",...") else one
    if plain == dict[str, float]:
        return st.dictionaries(st.sampled_from(["exact", "efficiency"]), NUMBERS["FLOAT"])
    if plain == dict[str, Any]:
        return st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | TEXTS, max_size=2)
    if "tuple" in str(plain):
        inner = values_of(plain.__args__[0])
        return st.lists(inner, max_size=3)
    return NUMBERS.get(metavar(kind), TEXTS)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    command = draw(st.sampled_from(sorted(set(COMMANDS) - {"eval"})))
    keys = draw(st.lists(st.sampled_from(sorted(fields(command))), unique=True, max_size=5))
    values = {key: draw(values_of(fields(command)[key].kind)) for key in keys}
    # an earlier stage would decide these
    values = {
        key: value for key, value in values.items() if key not in ("data", "candidates", "grid")
    }
    if command == "prep":
        values.setdefault("sources", ["rows.jsonl"])
    try:
        settled = resolve(command, Given(values, profile="cpu")).settings
    except UserError:
        settled = resolve(
            command, Given({"sources": ["a b.jsonl"]} if command == "prep" else {})
        ).settings
    settings = plain_settings(settled)
    if command == "prep":  # it adds the files of the stages that --from names
        added = [f"w/{name}/trajectories.jsonl" for name in settings["trajectories"]]
        settings["sources"] = [*settings["sources"], *added]
    return Plan(command, settings, {}, {})


@pytest.mark.long
@given(plan=plans(), out=st.sampled_from(["", "other"]))
def test_the_command_line_of_a_plan_makes_the_same_plan(plan, out, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_profiles, "card", lambda: None)
        patch.chdir(run)
        words = shlex.split(as_command(plan, Path("w"), Path("w") / (out or plan.command)))
        assert shlex.join(words).startswith(f"agentlite {typed(plan.command)} ")
        done = CliRunner().invoke(group, [*words[1:], "--print-config"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    (run / "printed.yaml").write_text(done.stdout, encoding="utf-8")
    printed = resolve(plan.command, Given(files=(str(run / "printed.yaml"),)))
    named = plain_settings(printed.settings)
    if plan.command == "prep":
        named["sources"] += [f"w/{name}/trajectories.jsonl" for name in named["trajectories"]]
    assert named == plan.settings
    assert words[-2:] == ["--run", "w"]
    assert ("--out" in words) == bool(out)
