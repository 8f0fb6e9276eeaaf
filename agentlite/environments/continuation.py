"""The ids of a model's next prompt: what it has sampled stays, and only the rest is encoded."""

from collections.abc import Sequence
from typing import NamedTuple

from agentlite.core.records import Ending
from agentlite.data.openai_messages import Opened
from agentlite.rendering.template import Template


class SeenTokens(NamedTuple):
    """What a model has read and written in a dialog so far, as text and as ids."""

    text: str
    ids: Sequence[int]


class NextPrompt(NamedTuple):
    """`new`: of the ids those behind the answer before; all of them if the prompt `opens` a row."""

    ids: list[int]
    new: tuple[int, ...]
    opens: bool


def next_prompt(seen: SeenTokens | None, dialog: Opened, template: Template) -> NextPrompt:
    """Ids that were sampled are read again as they are, as long as the template writes their text
    unchanged. Where it does not (it drops old thoughts, or orders the keys of a call), the model
    reads what a server would show it, and a new row begins.
    """
    if seen is None or not dialog.text.startswith(seen.text):
        return NextPrompt(dialog.ids, tuple(dialog.ids), opens=True)
    new = template.encode(dialog.text[len(seen.text) :], seen.ids)
    return NextPrompt([*seen.ids, *new], tuple(new), opens=False)


def seen_with(
    before: SeenTokens, text: str, ended: Ending, ids: Sequence[int], template: Template
) -> SeenTokens | None:
    """An answer behind its prompt. None if it has no ids, or those of its end are not those of its
    text.
    """
    is_end = ended == "turn"
    if not ids or (is_end and ids[-1] != template.token_id(template.turn_end)):
        return None
    written = before.text + text + (template.turn_end if is_end else "")
    return SeenTokens(written, [*before.ids, *ids])
