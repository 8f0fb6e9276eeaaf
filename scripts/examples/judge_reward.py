"""A reward by a judge: a model behind an OpenAI-compatible server scores every candidate.

    export JUDGE_URL=http://127.0.0.1:8000/v1 JUDGE_MODEL=qwen
    agentlite pairs --config recipes/no-gold.yaml --rewards scripts/examples/judge_reward.py:judged

The same line works with grpo. The key, if the server wants one, is read from JUDGE_KEY.
"""

import os
import threading

from agentlite.core.openai_client import Endpoint, ask
from agentlite.scoring.judge.llm_judge import PARAMETERS, Item, messages, read_verdict
from agentlite.scoring.rewards import Attempt


def judged(attempt: Attempt) -> float:
    """The judge's score from 0 to 5, as a number from 0 to 1. The rubric is that of `eval --judge`.

    A reply without a score raises: the candidate stays without one, and counts for max_failures.
    """
    endpoint = Endpoint(os.environ["JUDGE_URL"], os.environ["JUDGE_MODEL"], "JUDGE_KEY")
    question = next(one.content for one in reversed(attempt.messages) if one.role == "user")
    tools = ", ".join(tool.name for tool in attempt.tools)
    item = Item("", f"{question}\n\nTools: {tools}", attempt.text, attempt.reference)
    reply = ask(endpoint, messages(item), PARAMETERS, threading.Event())
    score, _, problem = read_verdict(reply.text)
    if score is None:
        raise ValueError(reply.problem or problem)
    return score / 5
