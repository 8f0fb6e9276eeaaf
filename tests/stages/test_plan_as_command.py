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
from agentlite.config.settings import COMMANDS, EvalSettings, fields
from agentlite.core.errors import UserError
from agentlite.stages import ablate, acting, grpo, make, pairs, prep, queries, templates
from agentlite.stages.eval import live, subjects
from agentlite.stages.plan_as_command import as_command
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan

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
    values = {key: draw(values_of(fields(command)[key])) for key in keys}
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


def test_only_what_differs_is_written_and_only_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    (tmp_path / "agentlite.yaml").write_text("sft:\n  seed: 3\n", encoding="utf-8")
    given = Given(
        {"max_steps": "5", "trl": {"weight_decay": 0.1}, "full": "true", "learning_rate": "2e-5"}
    )
    plan = Plan("sft", plain_settings(resolve("sft", given).settings), {}, {})
    run = Path("runs/default")
    assert as_command(plan, run, run / "long") == (
        "agentlite sft --out long --max-steps 5 --full --set 'sft.trl={\"weight_decay\": 0.1}'"
    )


@pytest.mark.parametrize("value", ["-=", "--", "sft", "equal"])
def test_a_value_that_begins_like_an_option_stays_a_value(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    settled = resolve("pairs", Given({"edits": value}, profile="cpu")).settings
    plan = Plan("pairs", plain_settings(settled), {}, {})
    words = shlex.split(as_command(plan, Path("w"), Path("w") / "pairs"))
    done = CliRunner().invoke(group, [*words[1:], "--print-config"], catch_exceptions=False)
    assert f'edits: "{value}"' in done.stdout


def test_servers_of_simulated_tools_and_users_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    run = Path("runs/default")
    settings = {"env": "mock:t.json", "model": "m", "tool_model": "world", "user_model": "anna"}
    inputs = {
        "model": "x",
        "tool_model": "http://a:1/v1 http://b:1/v1",
        "user_model": "http://c/v1",
    }
    words = as_command(Plan("rollout", settings, inputs, {}), run, run / "rollout").split(" --")
    assert {
        "tool-endpoint http://a:1/v1",
        "tool-endpoint http://b:1/v1",
        "user-endpoint http://c/v1",
        "tool-model world",
        "user-model anna",
    } <= {*words}


@pytest.mark.parametrize(
    ("judge_endpoint", "judge_model"),
    [
        ((), ()),
        ((), ("x",)),
        ((), ("x", "y")),
        (("http://a/v1",), ("x",)),
        (("http://b/v1",), ()),
        (("http://b/v1",), ("x", "y")),
        (("http://b/v1", "http://a/v1"), ()),
        (("http://b/v1", "http://c/v1"), ("x", "y")),
    ],
)
def test_the_judges_of_dialogs_are_asked_again(judge_endpoint, judge_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    given = {"env": "shop.py:Shop", "model": "m", "endpoint": ("http://a/v1",)}
    given |= {"judge_endpoint": judge_endpoint, "judge_model": judge_model}

    def judges(settings):
        found = make.find_judges(settings)
        return {one.name: (one.model, one.digest) for one in found}

    settings = resolve("make", Given({"what": "dialogs", **given}, profile="cpu")).settings
    digests = {name: url for name, (_, url) in judges(settings).items()}
    inputs = {"model": "http://a/v1", "user_model": "http://a/v1", **digests}
    plan = Plan("make", plain_settings(settings, make.NOT_OF_THE_PLAN), inputs, {})
    words = shlex.split(as_command(plan, Path("w"), Path("w/make")))
    done = CliRunner().invoke(group, [*words[1:], "--print-config"], catch_exceptions=False)
    (tmp_path / "printed.yaml").write_text(done.stdout, encoding="utf-8")
    again = resolve("make", Given(files=(str(tmp_path / "printed.yaml"),))).settings
    assert judges(again) == judges(settings)
    assert plain_settings(again, make.NOT_OF_THE_PLAN) == plan.settings


@pytest.mark.parametrize(
    ("inputs", "model", "line"),
    [
        ({}, "sft", "agentlite eval"),
        ({}, "dpo", "agentlite eval --model dpo"),
        (
            {"model": "http://a:1/v1 http://b:1/v1"},
            "qwen@http://a:1/v1",
            "agentlite eval --model qwen --endpoint http://a:1/v1 --endpoint http://b:1/v1",
        ),
    ],
)
def test_an_evaluation_names_its_model_and_its_servers(inputs, model, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    run = Path("runs/default")
    plan = Plan("eval", {"model": model, "max_new_tokens": 256, "protocol": "hermes"}, inputs, {})
    assert as_command(plan, run, run / "eval" / "prep" / "m") == line
    with run_folder.open_stage(run / "prep-5", Plan("prep", {}, {}, {}), force=False) as prep:
        prep.finish([], {})
    with_data = as_command(plan, run, run / "eval" / "prep-5" / "m")
    assert " --data prep-5" in with_data


# how a thing is done, and not what comes out
OF_THE_WAY = {
    *("endpoint", "endpoint_key", "endpoint_seconds", "endpoint_tries", "concurrency"),
    *("tool_endpoint", "tool_key", "user_endpoint", "user_key", "judge_endpoint", "judge_key"),
    *("world_memory", "reward_memory", "reward_seconds", "max_failures", "unanswered"),
    *("token_budget", "budget", "retry", "workers", "report_to"),
}
# of a command: what else may differ, since it is of other plans, or no row depends on it
MORE = {
    "rollout": {"batch_size"},
    "pairs": {"grid", "candidates", "batch_size", "preferences", "max_rejects"},
    "grpo": {"max_flat_steps"},
}
LEFT_OUT = {
    "prep": prep.NOT_OF_THE_PLAN,
    "rollout": acting.NOT_OF_THE_PLAN,
    "make": make.NOT_OF_THE_PLAN,
    "pairs": pairs.NOT_OF_THE_PLAN,
    "queries": queries.NOT_OF_THE_PLAN,
    "templates": templates.NOT_OF_THE_PLAN,
    "ablate": ablate.NOT_OF_THE_PLAN,
    "grpo": (*grpo.NOT_OF_THE_PLAN, *acting.OF_SERVERS, "world_memory", "report_to"),
}


@pytest.mark.parametrize("command", LEFT_OUT)
def test_a_plan_says_what_is_done_and_not_how(command):
    """A server that has moved, or more memory, must not make all that is done another plan."""
    of_the_way = OF_THE_WAY & fields(command).keys()
    named = {*LEFT_OUT[command]} & fields(command).keys()
    assert named == of_the_way | MORE.get(command, set())


def test_a_live_evaluation_counts_its_tasks_and_samples_apart_from_what_a_model_does():
    added = {*live.NOT_OF_A_ROLLOUT} - {*acting.NOT_OF_THE_PLAN}
    assert added == {"limit", "num_samples", "temperature"}
    assert {*acting.NOT_OF_THE_PLAN} <= {*live.NOT_OF_A_ROLLOUT}


def test_an_answer_to_a_recorded_prompt_depends_on_its_model_the_prompt_and_the_decoding():
    kept = plain_settings(EvalSettings(), subjects.NOT_OF_THE_ANSWER)
    of_a_model = {"engine", "attn_implementation", "load_in_4bit", "load_in_8bit"}
    of_a_model |= {"max_length", "max_new_tokens"}
    assert {*subjects.OF_A_MODEL} == of_a_model
    # a retriever is known by the digest of the prompts that it has changed
    assert {*kept} == {"split", "retrieve", "retrieve_by", "protocol"} | of_a_model
