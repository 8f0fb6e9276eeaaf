"""agentlite.data.curation.validate: an answer beside the messages is found; a command joins it."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record

ASKED, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
# where logs of requests have the answer to their messages
BESIDE: dict[str, dict[str, Any]] = {
    "completion of OpenAI": {"choices": [{"index": 0, "message": ANSWER}]},
    "proxy": {"response": {"id": "1", "choices": [{"message": ANSWER}]}},
    "proxy of Anthropic": {"response": ANSWER},
    "proxy of texts": {"response": "Hello."},
    "Langfuse": {"output": ANSWER},
    "MLX": {"completion": "Hello."},
}


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("before", [[], [ASKED, ANSWER]], ids=["first", "later"])
def test_an_answer_beside_the_messages_is_found_and_the_command_joins_it(
    name: str, before: list[dict[str, str]]
) -> None:
    row = {"messages": [*before, ASKED], "model": "m", **BESIDE[name]}
    with pytest.raises(RowError) as caught:
        validate(to_record(row))
    assert caught.value.at in BESIDE[name]
    command = caught.value.hint.split("`jq -c '", 1)[1].split("' FILE", 1)[0]
    made = subprocess.run(
        ["jq", "-c", command], input=json.dumps(row), capture_output=True, text=True, check=True
    )
    assert json.loads(made.stdout) == {"messages": [*before, ASKED, ANSWER], "model": "m"}
    validate(to_record(json.loads(made.stdout)))


def test_what_is_no_answer_gets_no_command() -> None:
    for beside in ({"response": 3}, {"output": []}, {"choices": []}, {"completion": None}):
        with pytest.raises(RowError) as caught:
            validate(to_record({"messages": [ASKED, ANSWER, ASKED], **beside}))
        assert (caught.value.code, caught.value.at) == ("E203", "")
