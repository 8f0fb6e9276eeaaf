"""The ids of a rollout are those that prep makes of its dialog, in every protocol and template."""

from functools import cache
from itertools import pairwise

import pytest
from support.examples import sample
from support.shipped_templates import shipped, with_marks
from support.shop import call, scripted, shop, tasks

from agentlite.core.errors import RowError, UserError
from agentlite.data.formats import own_rows, to_record
from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.world import World, WorldLimits
from agentlite.rendering import PROTOCOLS, choose, encode_answer, prompt_at, render, training_rows
from agentlite.rendering.encoding import IGNORED

pytestmark = pytest.mark.long  # a process for each world
TEMPLATES = dict(shipped())


@pytest.fixture(scope="module")
def played(tmp_path_factory, smollm2):
    """The shop, and the dialog of a model that knows it, as it was recorded."""
    made = shop(tmp_path_factory.mktemp("shop"), tasks())
    setup = setup_of(made, choose("hermes", smollm2).protocols["hermes"], smollm2)
    return made, played_by(setup, scripted).messages


def setup_of(made, protocol, template):
    return RolloutSetup(made, protocol, template, 10**6, 9, WorldLimits(60.0))


def played_by(setup, answers):
    task = next(setup.environment.tasks())
    (done,) = roll(setup, [(task, 0)], answers, 1)
    return done


def as_trained(messages, tools, protocol, template):
    """A model that writes each turn of a dialog as prep trains it."""
    record = to_record({"messages": messages, "tools": tools}, "openai", split=False)
    rows = render(record, protocol, template)

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            place = record.turns[prompt.turn]
            given = prompt_at(record, place, rows, protocol, template)
            # the ids of its own turns stay as they were sampled; their text is the one it knows
            assert template.decode(prompt.ids) == template.decode(given.ids)
            ids = encode_answer(given.answer, given.ended, template, given.ids)
            yield RolloutAnswer(index, given.answer, given.ended, len(ids), tuple(ids))

    return answers


def tools_of(made):
    with World(made.world_class) as world:
        world.reset(next(made.tasks()).row)
        return [tool.schema for tool in world.tools]


def said(ids, mask, template):
    """What was read before each turn, and what was said: runs of ids that are the model's."""
    edges = [n for n, pair in enumerate(pairwise([0, *mask, 0])) if pair[0] != pair[1]]
    return [
        (template.decode(ids[:start]), ids[start:end])
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def same_as_prep(done, protocol, template):
    """Turn by turn: what is read, and what is learned."""
    turns = [
        {"ended": turn.ended, "results": [*turn.results], "problem": turn.problem}
        for turn in done.turns
    ]
    fields = {key: getattr(done, key) for key in own_rows.TRAJECTORY.keys}
    record = own_rows.read_trajectory(fields | {"turns": turns})
    trained = [
        turn
        for row in training_rows(record, protocol, template)
        for turn in said(row.input_ids, [int(label != IGNORED) for label in row.labels], template)
    ]
    sampled = [
        turn
        for row in done.token_rows()
        for turn in said([*row.prompt, *row.ids], [0] * len(row.prompt) + row.mask, template)
    ]
    assert sampled == trained


def check_in(played, setting, template):
    made, messages = played
    (protocol,) = choose(setting, template).protocols.values()
    setup, tools = setup_of(made, protocol, template), tools_of(made)
    done = played_by(setup, as_trained(messages, tools, protocol, template))
    assert done.ended == "user" and len(done.turns) == 5 and done.scores == {"env": 1.0}
    same_as_prep(done, protocol, template)
    return done


# one of several prompts for each turn is of no rollout: it would ask the model twice
@pytest.mark.parametrize("protocol", [name for name, one in PROTOCOLS.items() if not one.exchanges])
def test_in_every_protocol(played, smollm2, templates, protocol):
    template = templates["tools"] if protocol == "chat" else smollm2
    done = check_in(played, protocol, template)
    if protocol in ("hermes", "react"):
        assert len(done.token_rows()) == 1


@pytest.fixture(scope="module")
def marked(smollm2):
    return cache(lambda name: with_marks(name, TEMPLATES[name], smollm2.tokenizer))


@pytest.mark.parametrize("name", sample(8, [*TEMPLATES]))
def test_in_every_template(played, marked, name):
    try:
        check_in(played, "auto", marked(name))
    except UserError as error:
        pytest.skip(f"prep refuses it: {error}")
    except RowError as error:
        pytest.skip(f"prep rejects the row: {error}")


def test_a_template_that_drops_old_thoughts_makes_a_row_of_each_part(played, templates):
    made, messages = played
    thought = {"role": "assistant", "content": "<think>\nI ask.\n</think>\n\nWhich one?"}
    done = check_in((made, [*messages[:5], thought, *messages[6:]]), "hermes", templates["forgets"])
    assert len(done.token_rows()) > 1


def test_a_turn_that_history_would_show_otherwise_begins_a_new_row(played, smollm2):
    """A call with its keys in another order is read again as a server shows it."""
    made, _ = played
    protocol = choose("hermes", smollm2).protocols["hermes"]
    strange = '<tool_call>\n{"arguments": {"query": "a"},  "name": "search"}\n</tool_call>'
    said = (strange, call("search", query="a"), "Here.", "That is all.")

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            text = said[prompt.turn]
            ids = encode_answer(text, "turn", smollm2, prompt.ids)
            yield RolloutAnswer(index, text, "turn", len(ids), tuple(ids))

    done = played_by(setup_of(made, protocol, smollm2), answers)
    assert [turn.opens for turn in done.turns] == [True, True, False, False]
    first, second = done.token_rows()
    assert strange in smollm2.decode([*first.ids]) and strange not in smollm2.decode(
        [*second.prompt]
    )
    assert call("search", query="a") in smollm2.decode([*second.prompt])
    assert {*second.turns} == {-1, 1, 2, 3}


@pytest.mark.parametrize(("ended", "rows"), [("turn", 1), ("cut", 1), ("stop", 1)])
def test_tokens_that_were_sampled_stay_as_they_are(played, smollm2, ended, rows):
    """Their text would be cut into others: `ap|ple` stays two tokens."""
    made, _ = played
    protocol = choose("hermes", smollm2).protocols["hermes"]
    pieces = [*smollm2.encode("An ap"), *smollm2.encode("ple")]
    assert pieces != smollm2.encode("An apple")

    def answers(prompts):
        for index, _ in enumerate(prompts):
            end = [smollm2.token_id(smollm2.turn_end)] if ended == "turn" else []
            yield RolloutAnswer(index, "An apple", ended, 4, (*pieces, *end))

    done = played_by(setup_of(made, protocol, smollm2), answers)
    found = done.token_rows()
    assert len(found) == rows and len(done.turns) == 2
    sampled = [token for token, own in zip(found[0].ids, found[0].mask, strict=True) if own]
    assert [*sampled[: len(pieces)]] == pieces and sampled.count(pieces[-1]) == 2
    text = smollm2.decode([*found[0].prompt, *found[0].ids])
    assert f"An apple{smollm2.turn_end}\n<|im_start|>user\nOne more.{smollm2.turn_end}" in text
