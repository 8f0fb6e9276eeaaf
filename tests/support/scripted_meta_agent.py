"""A scripted Meta-Agent for `make templates`: it writes templates, answers in them, and judges; not
a test itself.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

WORDS = (
    "You watch over a lighthouse and answer ships.",
    "A chef at a busy restaurant reads every order.",
    "Librarian of an old archive, patient and exact.",
    "You are the night porter of a grand hotel.",
    "Pilot of a small plane with few instruments.",
    "A gardener who knows each plant by its name.",
)
TEMPLATE = """<Profile>{profile}</Profile>
<Instruction>{profile} Work in small steps and check each.</Instruction>
<Tools>{profile} uses: {{tools}}</Tools>
<Goal>Wanted: {{goal}}</Goal>
<Memory>Before: {{memory}}</Memory>
<Format>{{format}}</Format>"""
CALL = 'Action: get_weather\nAction Input: {"city": "Oslo"}'
ANSWER = re.compile(r"<answer \w+>\n(.*?)\n</answer", re.DOTALL)


def good(number: int) -> str:
    return TEMPLATE.format(profile=WORDS[number % len(WORDS)])


def is_meta(body: Mapping[str, Any]) -> bool:
    return "You design prompts" in body["messages"][0]["content"]


def is_judge(body: Mapping[str, Any]) -> bool:
    return "You grade the answer" in body["messages"][0]["content"]


def templates_win(answer: str) -> int:
    return 2 if "benchmark" in answer else 4


def meta_agent(
    body: Mapping[str, Any],
    written: Mapping[int, Any] | None = None,
    score: Callable[[str], int] = templates_win,
    answer: str = "answered by: {}",
) -> Any:
    """`written`: replies other than a good template, by number; `score`: of an answer's text;
    `answer`: in a template, whose first words stand in the braces.
    """
    shown = body["messages"][-1]["content"]
    if is_meta(body):
        number = body["seed"] % 1000
        return (written or {}).get(number, good(number))
    if is_judge(body):
        (judged,) = ANSWER.findall(shown)
        return json.dumps({"reason": "so", "score": score(judged)})
    words = answer.format(next((words for words in WORDS if words in shown), "a benchmark"))
    return f"Thought: {words}\n{CALL}" if "Action Input:" in shown else words
