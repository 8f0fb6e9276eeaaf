"""The right calls of a task -> the answers of a model that makes them, one call per turn."""

from collections.abc import Iterator, Mapping, Sequence

from agentlite.core.records import Ending, Message
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt
from agentlite.environments.tasks import EnvironmentTask
from agentlite.rendering import Protocol, encode_answer
from agentlite.rendering.template import Template

GOLD = "gold"  # the name of that model
# what is said to the user behind the calls, and where no call is right: the data has no words
DONE = Message("assistant", "Done.")
CANNOT = Message("assistant", "I cannot do that with the tools and the information that I have.")


def gold_turns(task: EnvironmentTask) -> list[Message]:
    """Each call in a turn of its own, so that the next one is made with its result in sight; behind
    those of a turn of the user's, words.
    """
    turns = []
    for calls in task.gold or ():
        turns += [Message("assistant", "", (call,)) for call in calls]
        turns.append(DONE if calls else CANNOT)
    return turns


def gold_answers(
    turns: Mapping[str, Sequence[Message]],
    prompts: Sequence[RolloutPrompt],
    protocol: Protocol,
    template: Template,
) -> Iterator[RolloutAnswer]:
    """The answer to each prompt, by its place in its rollout. `turns`: of each task."""
    for index, prompt in enumerate(prompts):
        of_task = turns[prompt.key.task]
        message = of_task[prompt.turn] if prompt.turn < len(of_task) else DONE
        text = protocol.write(message, prompt.opened.record.tools)
        ended: Ending = "stop" if text.endswith(protocol.stops) else "turn"
        ids = tuple(encode_answer(text, ended, template, prompt.ids))
        yield RolloutAnswer(index, text, ended, len(ids), ids)
