"""`make templates`: a scripted Meta-Agent and judge, the arithmetic of the filter, and a stage that
asks nothing twice.
"""

import json
from collections import Counter
from functools import partial
from itertools import count
from statistics import fmean

import pytest
from msgspec.structs import replace
from support.scripted_meta_agent import WORDS, good, is_judge, is_meta, meta_agent, templates_win
from support.scripted_server import ScriptedServer
from support.stopped_rows import stops_at

import agentlite
from agentlite.config.settings import TemplatesSettings
from agentlite.core.errors import NETWORK, OTHER_PLAN, REJECTS, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows, write_rows
from agentlite.rendering import choose
from agentlite.rendering.protocols.prompt_template import PromptTemplate
from agentlite.scoring.metrics.confidence import summary
from agentlite.stages.templates import _can_be_measured, _figures, _judge
from agentlite.stages.templates.measured import (
    MeasuredTemplates,
    TemplateDifference,
    difference,
)
from agentlite.stages.templates.meta_agent import STYLES, WrittenTemplate, questions

pytestmark = pytest.mark.long

CITIES = ("Oslo", "Rome", "Kyiv", "Bonn", "Lima", "Cork", "Nice", "Bern", "Riga", "Porto")


@pytest.fixture
def server():
    """`written`: replies other than a good template, by number; `score`: of an answer's text."""
    one = ScriptedServer(lambda body: meta_agent(body, one.written, one.score))
    one.written, one.score = {}, templates_win
    yield one
    one.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prep of ten questions about the weather, all in train."""
    folder = tmp_path_factory.mktemp("prepared")
    city = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"name": "get_weather", "description": "Weather of a city.", "parameters": city}
    rows = []
    for name in CITIES:
        function = {"name": "get_weather", "arguments": json.dumps({"city": name})}
        call = {"id": "c0", "type": "function", "function": function}
        messages = [
            {"role": "user", "content": f"What is the weather in {name} like today?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        rows.append({"messages": messages, "tools": [{"type": "function", "function": tool}]})
    write_rows(folder / "rows.jsonl", rows)
    shares = {"dev": 0.0, "test": 0.0, "model": "smollm2-135m"}
    agentlite.prep(str(folder / "rows.jsonl"), run=str(folder / "run"), **shares)
    return folder / "run"


def make(prepared, server, folder, **options):
    defaults = {
        "data": str(prepared / "prep"),
        "endpoint": (server.url,),
        "model": "teacher",
        "num_templates": 6,
        "num_queries": 5,
        "endpoint_tries": 1,
    }
    return agentlite.make_templates(run=str(folder), **{**defaults, **options})


def rows_of(folder):
    return {row["name"]: row for row in read_rows(folder / "templates" / "templates.jsonl")}


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(0.0, [1, 4]), (0.4, [1, 4]), (0.5, [4]), (1.9, [4])]
)
def test_a_template_is_kept_if_its_mean_is_more_than_epsilon_above_the_benchmark(
    prepared, server, tmp_path, epsilon, kept
):
    points = {WORDS[0]: 3.5, WORDS[3]: 5.0, WORDS[4]: 1.0}
    seen = Counter()

    def score(answer):
        who = answer.partition(": ")[2]
        mean = points.get(who, 3)
        seen[who] += 1
        return int(mean) + (mean % 1 > 0 and seen[who] % 2)

    server.score = score
    figures = make(
        prepared, server, tmp_path, epsilon=epsilon, num_queries=4, concurrency=1
    ).figures
    names = [f"meta-{number:02d}" for number in kept]
    assert figures["kept"] == len(kept) and figures["dropped"] == {"not better": 6 - len(kept)}
    means = {name: one["points"]["mean"] for name, one in figures["differences"].items()}
    assert means == {
        "meta-01": 0.5,
        "meta-02": 0.0,
        "meta-03": 0.0,
        "meta-04": 2.0,
        "meta-05": -2.0,
        "meta-06": 0.0,
    }
    assert {name for name, row in rows_of(tmp_path).items() if row["kept"]} == {*names}
    assert sorted(path.stem for path in (tmp_path / "templates").glob("*.txt")) == names


def test_a_request_without_all_scores_does_not_count():
    scores = {("a", "1"): 5, ("b", "1"): 3, ("c", "1"): 2, ("a", "2"): 0, ("b", "2"): 5}
    points, score = difference("a", ["b", "c"], ["1", "2"], scores)
    assert points == [5 - fmean([3, 2])] and score == 2.5


FAULTS = {
    "missing slot": good(0).replace("<Goal>Wanted: {goal}</Goal>", ""),
    "double slot": good(0) + "\n<Tools>{tools}</Tools>",
    "wrong places": good(0).replace("{memory}", "memory"),
    "no template": "I am sorry, but I cannot help with that.",
    "slot without an end": good(0).replace("</Goal>", ""),
    "text outside the slots": good(0).replace("<Goal>", "Now the goal: <Goal>"),
    "not read back": good(0).replace("small steps", "<|im_end|>"),
    "cut off": {"content": good(0)[:200], "finish_reason": "length"},
    "copy": good(1).replace("steps", "stages"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_dropped_and_counted_and_costs_no_answer(
    prepared, server, tmp_path, fault
):
    server.written = {2: FAULTS[fault]}
    figures = make(prepared, server, tmp_path, num_templates=3).figures
    assert figures["dropped"] == {fault: 1} and figures["kept"] == 2
    assert rows_of(tmp_path)["meta-03"]["fault"] == fault
    asked = [body for body in server.bodies if not is_meta(body) and not is_judge(body)]
    assert len(asked) == 5 * (2 + 2)  # two benchmarks and two templates


def test_what_a_model_says_around_its_template_and_its_thoughts_are_left_out(
    prepared, server, tmp_path
):
    said = f"<think>six parts</think>\nHere it is:\n```\n{good(0)}\n```\nGood luck!"
    server.written = {0: said}
    make(prepared, server, tmp_path, num_templates=1)
    assert rows_of(tmp_path)["meta-01"]["text"] == good(0)


def test_the_files_are_protocols_that_prep_takes_and_read_back(prepared, server, tmp_path, smollm2):
    done = make(prepared, server, tmp_path)
    assert done.figures["kept"] == 6
    folder = tmp_path / "templates"
    mixture = choose(f"hermes,{folder}", smollm2)
    calls = {row["calls"] for row in rows_of(tmp_path).values()}
    assert len(mixture.protocols) == 7 and len(calls) == 5
    again = agentlite.prep(
        *map(str, prepared.parent.glob("rows.jsonl")),
        run=str(tmp_path),
        model="smollm2-135m",
        protocol=str(folder),
        dev=0.0,
        test=0.0,
    )
    assert again.figures["kept"] == len(CITIES) and not again.figures["rejected"]
    drawn = {from_row(row).meta["protocol"] for row in read_rows(tmp_path / "prep/train.jsonl")}
    assert len(drawn) >= 3 and drawn <= {*mixture.protocols}
    assert "--protocol hermes," in done.next and str(folder) in done.next


@pytest.mark.parametrize("count", [3, 12, 40])
def test_a_killed_run_asks_nothing_again_that_was_answered(prepared, server, tmp_path, count):
    run = partial(make, prepared, server, concurrency=1)
    with stops_at(count), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed")
    killed = run(tmp_path / "killed").figures
    asked = Counter(json.dumps(body, sort_keys=True) for body in server.bodies)
    assert asked.total() - len(asked) <= 1  # the one that was under way
    before = len(server.bodies)
    assert run(tmp_path / "killed").status == "up to date" and len(server.bodies) == before
    assert killed == run(tmp_path / "whole").figures


def test_other_judges_and_servers_that_do_not_answer(prepared, server, tmp_path):
    other = ScriptedServer(lambda body: json.dumps({"score": 5 if "hotel" in str(body) else 1}))
    try:
        options = {"judge_endpoint": other.url, "judge_model": "judge"}
        figures = make(prepared, server, tmp_path, **options).figures
        assert figures["kept"] == 1 and {body["model"] for body in other.bodies} == {"judge"}
        assert not any(is_judge(body) for body in server.bodies)
        with pytest.raises(UserError) as refused:
            make(prepared, server, tmp_path, **options | {"judge_model": "another"})
        assert refused.value.exit_code == OTHER_PLAN
    finally:
        other.close()


def test_answers_without_a_score_below_the_limit_do_not_end_the_run(prepared, server, tmp_path):
    numbers = count()
    judge = ScriptedServer(lambda _: "REFUSES" if next(numbers) < 2 else json.dumps({"score": 3}))
    options = {"judge_endpoint": judge.url, "judge_model": "judge", "epsilon": -1.0}
    try:
        assert make(prepared, server, tmp_path / "some", max_failures=0.2, **options).figures[
            "kept"
        ]
        numbers = count()
        with pytest.raises(UserError, match="have no answer") as refused:
            make(prepared, server, tmp_path / "none", max_failures=0.0, **options)
        assert refused.value.exit_code == NETWORK
    finally:
        judge.close()


def test_a_server_that_stops_ends_the_run_and_the_same_command_carries_on(
    prepared, server, tmp_path
):
    server.written = dict.fromkeys(range(3), "REFUSES")
    with pytest.raises(UserError) as refused:
        make(prepared, server, tmp_path)
    assert refused.value.exit_code == NETWORK and "same command" in refused.value.fix
    server.written = {}
    before = len(server.bodies)
    assert make(prepared, server, tmp_path).figures["kept"] == 6
    assert sum(map(is_meta, server.bodies[before:])) == 3


def test_templates_without_an_answer_below_the_limit_are_counted(prepared, server, tmp_path):
    server.written = {2: "REFUSES"}
    figures = make(prepared, server, tmp_path, max_failures=0.2).figures
    assert figures["dropped"] == {"no answer": 1} and figures["kept"] == 5


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"endpoint": ()}, "needs a model"),
        ({"model": ""}, "which of its models"),
        ({"benchmark": "chat"}, "server's own chat template"),
        ({"benchmark": "nothing"}, "no protocol 'nothing'"),
        ({"judge_endpoint": "http://localhost:1/v1"}, "which of its models"),
        ({"data": "none"}, "no such stage"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_question(
    prepared, server, tmp_path, options, problem
):
    with pytest.raises(UserError, match=problem):
        make(prepared, server, tmp_path, **options)
    assert server.bodies == []


def test_where_none_is_left_the_reasons_are_named(prepared, server, tmp_path):
    server.score = lambda answer: 3
    with pytest.raises(UserError, match="not better 6") as refused:
        make(prepared, server, tmp_path)
    assert refused.value.exit_code == REJECTS
    server.written = dict.fromkeys(range(6), "No.")
    with pytest.raises(UserError, match="no template 6"):
        make(prepared, server, tmp_path, out="nonsense")


def test_a_dry_run_counts_the_answers_and_asks_nothing(prepared, server, tmp_path):
    figures = make(prepared, server, tmp_path, dry_run=True).figures
    assert figures == {
        "folder": "new",
        "requests": 5,
        "templates": 6,
        "answers": 5 * (6 + 2),  # two benchmarks
        "scores": 5 * (6 + 2),
    }
    assert server.bodies == [] and not (tmp_path / "templates").exists()


def test_the_tokens_of_the_judge_are_those_that_it_read_and_wrote(prepared, server, tmp_path):
    figures = make(prepared, server, tmp_path, num_templates=1).figures
    judged = [body for body in server.bodies if is_judge(body)]
    assert figures["judge_tokens"] == 110 * len(judged) > 0
    assert figures["benchmark"].keys() == {"autogpt", "toolllama"}
    [one] = figures["differences"].values()
    assert one["readable"] == 1.0 and one["points"]["count"] == 5


def test_each_candidate_is_asked_for_in_a_style_a_draw_and_with_requests_of_its_own():
    requests = [f"Is it wet in {city}?" for city in CITIES] + ["Sing a song " + "la " * 300]
    asked = {
        seed: questions(TemplatesSettings(num_templates=9, near=3, seed=seed), requests)
        for seed in (0, 1)
    }
    texts = [one.messages[0]["content"] for one in asked[0]]
    assert all(STYLES[number % 8] in text for number, text in enumerate(texts))
    shown = [[line for line in text.splitlines() if line.startswith("- ")] for text in texts]
    assert {len(lines) for lines in shown} == {3} and len({*map(tuple, shown)}) > 3
    assert max(len(line) for lines in shown for line in lines) <= 2 + 500
    draws = [one.parameters["seed"] for of_seed in asked.values() for one in of_seed]
    assert len({*draws}) == len(draws) and asked[0] == questions(
        TemplatesSettings(num_templates=9, near=3), requests
    )
    settings = TemplatesSettings()
    [first, *_] = asked[0]
    assert first.parameters["temperature"] == settings.temperature
    assert first.parameters["max_tokens"] == settings.max_new_tokens


def test_only_a_first_turn_that_a_user_asked_for_and_is_learned_is_measured(dialog):
    assert _can_be_measured(dialog, {}) and not _can_be_measured(replace(dialog, tools=()), {})
    read = replace(dialog.messages[2], loss=False)
    unlearned = replace(dialog, messages=(*dialog.messages[:2], read, *dialog.messages[3:]))
    assert not _can_be_measured(unlearned, {})
    begun = replace(dialog, messages=(dialog.messages[0], *dialog.messages[2:]))
    assert not _can_be_measured(begun, {})  # nobody has asked for anything
    assert not _can_be_measured(replace(dialog, messages=dialog.messages[:2]), {})


def test_why_templates_are_dropped_adds_up():
    def one(number, fault=""):
        return WrittenTemplate(number, PromptTemplate(f"meta-{number}", "", "", ""), fault)

    found = [one(1), one(2, "copy"), one(3), one(4), one(5)]
    points = {"meta-1": [1.0], "meta-3": [0.0], "meta-4": None, "meta-5": [-1.0]}
    by = MeasuredTemplates(
        {name: TemplateDifference(of and summary(of, 0), None, 1.0) for name, of in points.items()},
        {"autogpt": 3.0},
        {"no score": 2},
        7,
    )
    figures = _figures(found, by, ["meta-1"])
    assert figures["dropped"] == {"copy": 1, "not better": 2, "no score": 1}
    assert figures["written"] == figures["kept"] + sum(figures["dropped"].values()) == 5
    assert (figures["benchmark"], figures["judge_problems"]) == ({"autogpt": 3.0}, {"no score": 2})


def test_a_judge_has_its_own_key_at_its_own_server_and_no_other():
    usual = {"endpoint": ("http://a/v1",), "model": "m"}
    keys = {"endpoint_key": "WRITER", "judge_key": "JUDGE"}
    for changes, expected in (
        ({}, ("http://a/v1", "m", "WRITER")),
        ({"judge_model": "j"}, ("http://a/v1", "j", "WRITER")),
        ({"judge_endpoint": "http://b/v1", "judge_model": "j"}, ("http://b/v1", "j", "JUDGE")),
    ):
        found = _judge(TemplatesSettings(**usual, **keys, **changes))
        assert (found.url, found.model, found.key) == expected
