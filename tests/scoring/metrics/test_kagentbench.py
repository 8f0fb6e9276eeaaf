"""KAgentBench: the published parts, and on generated rows a score calculated
another way.
"""

import json
import random
from functools import cache
from statistics import fmean

import pytest

from agentlite.core.errors import UserError
from agentlite.scoring.metrics.kagentbench import (
    PARTS,
    READERS,
    Row,
    StepTask,
    overall,
    read,
    score,
    word_tokenizer,
)

NLTK = {  # what nltk 3.10 says, with Punkt's English model
    "Muffins cost $3.88 (3,36)\nin New York.  Buy two.": (
        "Muffins cost $ 3.88 ( 3,36 ) in New York . Buy two ."
    ),
    "Dr. Lee can't; we're gonna go -- 'tis late...": (
        "Dr. Lee ca n't ; we 're gon na go -- ' tis late ..."
    ),
    "See e.g. St. Louis, U.S. It rains!": "See e.g . St. Louis , U.S . It rains !",
    "北京. Weather in 上海？GPT模型": "北京 . Weather in 上海？GPT模型",
    "J. Bach «was» here.’ End": "J. Bach « was » here . ’ End",
}
PUBLISHED = {  # plan, tool use, reflection, conclusion, profile: the overall beside them
    "GPT-3.5-turbo": ([18.55, 26.26, 8.06, 37.26, 35.42], 25.63),
    "Qwen-7B-MAT": ([31.64, 43.30, 33.34, 44.85, 44.78], 39.85),
    "Qwen-14B-MAT": ([43.17, 63.78, 32.14, 45.47, 45.22], 49.94),
}
FUNCS = [
    {"name": name, "parameters": {"type": "object", "properties": {"city": {}, "days": {}}}}
    for name in ("weather", "forecast")
]
WORDS = ["rain", "in", "Oslo", "Weather", "3.5", "tomorrow", "(mm)", "北京", "天气", "find", "it,"]
SPLIT = {"(mm)": ["(", "mm", ")"], "北京": ["北", "京"], "天气": ["天", "气"], "it,": ["it", ","]}


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_overalls_follow_from_their_parts(model):
    parts, published = PUBLISHED[model]
    assert overall(dict(zip(PARTS, parts, strict=True))) == pytest.approx(published, abs=0.006)


def longest_common(first, second):
    @cache
    def longest(i, j):
        if i == len(first) or j == len(second):
            return 0
        if first[i] == second[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return longest(0, 0)


def by_hand(gold, said):
    """ROUGE-L of two phrases, from the tokens that they were made of."""
    pieces = [
        [token for word in text.split() for token in SPLIT.get(word, [word])]
        for text in (gold, said)
    ]
    if not all(pieces):
        return 0.0
    common = longest_common(*map(tuple, pieces))
    precision, recall = common / len(pieces[1]), common / len(pieces[0])
    return 2 * precision * recall / (precision + recall) if common else 0.0


def phrase(draw, least=1):
    return " ".join(draw.choices(WORDS, k=draw.randint(least, 7)))


def made(draw, phrases):
    """What a model could have said to some of the templates, with the thought, tool and arguments
    to be read of it.
    """
    found = {}
    for template in draw.sample(sorted(READERS), k=draw.randint(1, 5)):
        thought, tool = (
            draw.choice(phrases),
            draw.choice(["weather", "weather", "forecast", "sing"]),
        )
        arguments = {
            k: draw.choice(phrases)
            for k in draw.sample(["city", "days", "extra"], k=draw.randint(0, 3))
        }
        found[template] = WRITERS[template](draw, thought, tool, arguments)
    return found


def react(draw, thought, tool, arguments):
    value = arguments.get("city", "Oslo")
    text = f"{thought}\nAction: {tool}\nAction Input: {value}\nObservation: sun"
    return text, (thought, tool, {} if tool == "sing" else {"city": value})


def autogpt(draw, thought, tool, arguments):
    said = {"thoughts": {"text": thought}, "command": {"name": tool, "args": arguments}}
    return written(draw, said), (thought, tool, arguments)


def kuaiagent(draw, thought, tool, arguments):
    said = {"task_name": thought, "command": {"name": tool, "args": arguments}}
    return written(draw, said), (thought, tool, arguments)


def toolllama(draw, thought, tool, arguments):
    if draw.random() < 0.2:
        return f"Action: {tool}", ("[ ]", tool, {})  # as tokens, the text of an empty list
    text = f"Thought: {thought}\nAction: {tool}\nAction Input: {written(draw, arguments)}"
    return text, (thought, tool, arguments)


def modelscope(draw, thought, tool, arguments):
    call = {"api_name": tool, "parameters": arguments}
    return f"{thought}<|startofthink|>{written(draw, call)}<|endofthink|>", (
        "None",
        tool,
        arguments,
    )


def written(draw, said):
    """JSON, at times with its end left open: the script repairs that."""
    text = json.dumps(said, ensure_ascii=False)
    return text if draw.random() < 0.7 else text.rstrip("}")


WRITERS = {
    "ReACT": react,
    "AutoGPT": autogpt,
    "KuaiAgent": kuaiagent,
    "ToolLlama": toolllama,
    "ModelScope": modelscope,
}


def generated(count=200, seed=6):
    """Rows of every type, each with what is to be read of it: by template, or None."""
    draw = random.Random(seed)
    for number in range(count):
        kind = ("plantooluse", "reflextion", "conclusion", "profile")[number % 4]
        phrases = [phrase(draw) for _ in range(3)]
        if kind in ("conclusion", "profile"):
            golds = [StepTask(golden_result=phrase(draw)) for _ in range(draw.randint(1, 3))]
            said = (
                phrase(draw, 0)
                if kind == "profile"
                else {t: phrase(draw, 0) for t in sorted(READERS)}
            )
            yield Row(str(number), kind, golds, [], None, said), None
            continue
        golds = [
            StepTask(
                draw.choice([*phrases, "None"]),
                draw.choice(["weather", "weather", "forecast", "None"]),
                {
                    k: draw.choice(phrases)
                    for k in draw.sample(["city", "days"], k=draw.randint(0, 2))
                },
            )
            for _ in range(draw.randint(1, 3))
        ]
        texts = made(draw, phrases)
        last = draw.choice([golds[0], StepTask("", "", {})])
        memory = {"tool_name": last.tool_name, "tool_args": last.tool_args}
        row = Row(
            str(number), kind, golds, FUNCS, memory, {t: text for t, (text, _) in texts.items()}
        )
        yield row, [read for _, read in texts.values()]


def calculated(rows):
    """The five parts by the formulas as they are written down, and the overall."""
    parts = {"planning": [], "tool_use": [], "reflection": [], "concluding": [], "profile": []}
    for row, said in rows:
        golds = row.golden_result_list
        if row.type == "profile":
            parts["profile"].append(max(by_hand(g.golden_result, row.model_predict) for g in golds))
        elif row.type == "conclusion":
            best = [
                max(by_hand(g.golden_result, text) for g in golds)
                for text in row.model_predict.values()
            ]
            parts["concluding"].append(fmean(best))
        else:
            each = [[agreement(g, *one, row.memory_last_task) for g in golds] for one in said]
            for name in ("planning", "tool_use") if row.type == "plantooluse" else ("reflection",):
                parts[name].append(fmean([max(a[name] for a in of_one) for of_one in each]))
    means = {name: fmean(values) for name, values in parts.items()}
    return {
        **means,
        "overall": sum(
            w * m for w, m in zip([0.25, 0.35, 0.1, 0.2, 0.1], means.values(), strict=True)
        ),
    }


def agreement(gold, thought, tool, arguments, last):
    if gold.tool_name == "None" or gold.tool_name != tool:
        return {"planning": 0.0, "tool_use": 0.0, "reflection": 0.0}
    plan = 0.0 if gold.thought == "None" else by_hand(gold.thought, thought)
    shares = [
        by_hand(value, arguments[key]) if key in arguments else 0.0
        for key, value in gold.tool_args.items()
    ]
    use = fmean(shares) if shares and arguments else float(not shares and not arguments)
    repeats = (gold.tool_name, gold.tool_args) == (last["tool_name"], last["tool_args"])
    reflects = 0.0 if repeats or gold.thought == "None" else 0.3 * plan + 0.7 * use
    return {"planning": plan, "tool_use": use, "reflection": reflects}


def test_on_200_rows_the_score_is_that_of_a_calculation_made_another_way():
    rows = list(generated())
    found = score([row for row, _ in rows], seed=0)
    expected = calculated(rows)
    assert {name: figure.mean for name, figure in found.items()} == pytest.approx(
        expected, abs=1e-6
    )
    assert all(0.05 < value < 0.9 for value in expected.values())
    assert all(figure.low <= figure.mean <= figure.high for figure in found.values())
    assert [found[name].count for name in ("planning", "profile", "overall")] == [50, 50, 200]


REPAIRED = {
    "braces left open": '{"task_name": "t", "command": {"name": "weather", "args": {"city": "Oslo"',
    "bare keys": '{task_name: "t", command: {name: "weather", args: {city: "Oslo"}}}',
    "bad escapes": (
        r'{"task_name": "t\_", "command": {"name": "weather", "args": {"city": '
        r'"Os\lo"}}}'
    ),
    "braces too many": (
        '{"task_name": "t", "command": {"name": "weather", "args": {"city": "Oslo"}\n}\n}}}'
    ),
    "words around": (
        'So:\n{"task_name": "t", "command": {"name": "weather", "args": {"city": '
        '"Oslo"}\n}\n}\nDone.'
    ),
}


@pytest.mark.parametrize("text", REPAIRED.values(), ids=REPAIRED)
def test_json_is_repaired_as_published(text):
    said = READERS["KuaiAgent"](text, FUNCS)
    assert (said.tool, said.arguments) == ("weather", {"city": "Oslo"})


ROW = {
    "id": "k1",
    "type": "plantooluse",
    "funcs": FUNCS,
    "golden_result_list": [{"thought": "t", "tool_name": "weather", "tool_args": {}}],
    "prompt_input": {},
}
SAID = {
    "id": "k1",
    "type": "plantooluse",
    "model_predict": {"ReACT": "Action: weather\nAction Input: Oslo"},
}
BAD = {
    "missing": ([ROW], [], "k1 (plantooluse) stands in one of the two files only"),
    "unknown": ([ROW], [SAID, SAID | {"id": "k2"}], "k2 (plantooluse) stands in one"),
    "twice": ([ROW], [SAID, SAID], "said.jsonl:2: k1 (plantooluse) appears twice"),
    "no text": (
        [ROW],
        [{"id": "k1", "type": "plantooluse"}],
        "said.jsonl:1: Object missing required field `model_predict`",
    ),
    "one text for many prompts": (
        [ROW],
        [SAID | {"model_predict": "x"}],
        "said.jsonl:1: model_predict is one text of a profile, and of others an object",
    ),
    "unknown template": (
        [ROW],
        [SAID | {"model_predict": {"ReAct": ""}}],
        "said.jsonl:1: Invalid enum value 'ReAct' - at `key` in `$.model_predict`",
    ),
    "no gold": (
        [{"id": "k1", "type": "plantooluse"}],
        [SAID],
        "asked.jsonl:1: Object missing required field `golden_result_list`",
    ),
    "no id": ([{}], [], "asked.jsonl:1: Object missing required field `id`"),
    "not UTF-8": ([ROW], b"\xff\n", "said.jsonl:1: not a JSON row"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_rows_are_told_with_their_place(bad, tmp_path):
    asked, said, problem = bad
    for name, rows in (("asked", asked), ("said", said)):
        content = rows if isinstance(rows, bytes) else "\n".join(map(json.dumps, rows)).encode()
        (tmp_path / f"{name}.jsonl").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(tmp_path / "asked.jsonl", tmp_path / "said.jsonl")
    assert problem in str(caught.value) and caught.value.fix


@pytest.mark.parametrize("text", NLTK)
def test_tokens_are_those_of_nltk(text):
    assert " ".join(word_tokenizer()(text)) == NLTK[text]
