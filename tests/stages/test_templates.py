"""`make templates`: a scripted Meta-Agent and judge, the arithmetic of the filter, and a stage that
asks nothing twice.
"""

import json
import shlex
from collections import Counter

import pytest
from support.scripted_meta_agent import WORDS, good, is_judge, is_meta, meta_agent, templates_win
from support.scripted_server import ScriptedServer

import agentlite
from agentlite.core.errors import NETWORK, REJECTS, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows, write_rows
from agentlite.rendering import choose

pytestmark = pytest.mark.long

CITIES = ("Oslo", "Rome", "Kyiv", "Bonn", "Lima", "Cork", "Nice", "Bern", "Riga", "Porto")


@pytest.fixture
def server():
    """See `meta_agent`."""
    one = ScriptedServer(lambda body: meta_agent(body, one.written, one.score, one.answer))
    one.written, one.score, one.answer = {}, templates_win, "answered by: {}"
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
        "requests": {"tries": 1},
    }
    return agentlite.make_templates(run=str(folder), **{**defaults, **options})


def rows_of(folder):
    return {row["name"]: row for row in read_rows(folder / "templates" / "templates.jsonl")}


def instances(folder):
    rows = read_rows(folder / "templates" / "instances.jsonl")
    return [{**row, "meta": json.loads(row["meta"])} for row in rows]


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(0.0, [1, 4]), (0.4, [1, 4]), (0.5, [4]), (1.9, [4])]
)
def test_a_template_is_kept_if_its_mean_is_more_than_epsilon_above_the_benchmark(
    prepared, server, tmp_path, epsilon, kept
):
    points = {WORDS[0]: 3.5, WORDS[3]: 5.0, WORDS[4]: 1.0}
    seen = Counter()

    def score(answer):
        who = next((words for words in WORDS if words in answer), "")
        mean = points.get(who, 3)
        seen[who] += 1
        return int(mean) + (mean % 1 > 0 and seen[who] % 2)

    server.score = score
    figures = make(
        prepared, server, tmp_path, epsilon=epsilon, num_queries=4, requests={"concurrency": 1}
    ).figures
    names = [f"meta-{number:02d}" for number in kept]
    assert figures["kept"] == len(kept) and figures["dropped"] == {"not better": 6 - len(kept)}
    # of meta-01 every other answer is a point above the benchmark, of meta-04 all are two
    gained = {one["meta"]["instance"]["points"] for one in instances(tmp_path)}
    assert gained == ({1.0, 2.0} if epsilon < 0 else {2.0}) and figures["instances"] == 4
    means = {name: one["points"]["mean"] for name, one in rows_of(tmp_path).items()}
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


@pytest.mark.parametrize(
    ("answer", "options", "reason"),
    [
        ("answered by: {}", {"threshold": 4.0}, "below the threshold"),
        ("<tool_call>{}</tool_call>", {"num_templates": 1}, "answers that do not read"),
    ],
)
def test_a_template_that_scores_low_or_whose_answers_do_not_read_is_not_recommended(
    prepared, server, tmp_path, answer, options, reason
):
    server.answer = answer
    with pytest.raises(UserError, match=f"no template is good enough: .*{reason}") as refused:
        make(prepared, server, tmp_path, **options)
    assert refused.value.exit_code == REJECTS and not instances(tmp_path)


def test_a_judge_that_is_cut_off_before_its_first_word_gives_no_answer(prepared, server, tmp_path):
    nothing = {"content": "", "finish_reason": "length"}
    server.reply = lambda body: nothing if is_judge(body) else meta_agent(body)
    with pytest.raises(UserError, match="questions have no answer") as refused:
        make(prepared, server, tmp_path)
    assert (refused.value.exit_code, refused.value.location) == (NETWORK, "--judge-endpoint")


FAULTS = {
    "missing slot": good(0).replace("<Goal>Wanted: {goal}</Goal>", ""),
    "double slot": good(0) + "\n<Tools>{tools}</Tools>",
    "wrong places": good(0).replace("{memory}", "memory"),
    "no template": "I am sorry, but I cannot help with that.",
    "slot without an end": good(0).replace("</Goal>", ""),
    "text outside the slots": good(0).replace("<Goal>", "Now the goal: <Goal>"),
    "not read back": good(0).replace("small steps", "<|im_end|>"),
    "cut off": {"content": good(0)[:200], "finish_reason": "length"},
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
    # better answers are rows of prep as well, each in the template in which it was written
    words = shlex.split(done.next)
    sources = words[2 : words.index("--protocol")]
    assert sources[-1] == str(folder / "instances.jsonl")
    options = {"run": str(tmp_path / "i"), "model": "smollm2-135m", "dev": 0.0, "test": 0.0}
    kept = agentlite.prep(sources[-1], protocol=f"hermes,{folder}", **options).figures
    assert kept["kept"] == done.figures["instances"] == 5
    written = {one["meta"]["instance"]["record"]: one for one in instances(tmp_path)}
    for record in map(from_row, read_rows(tmp_path / "i/prep/train.jsonl")):
        origin = record.meta["instance"]["record"]
        assert record.meta["protocol"] == written[origin]["meta"]["protocol"] != "hermes"
    both = agentlite.prep(*sources, protocol=f"hermes,{folder}", force=True, **options).figures
    assert both["kept"] > len(CITIES)
