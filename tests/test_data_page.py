"""docs/data.md run as it stands: from a list of tools to dialogs, a tuned model and a live eval."""

import json
import re
import shlex

import pytest
from support.processes import agentlite
from support.samples import ROOT
from support.scripted_server import ScriptedServer
from support.scripted_tools import TOOLS, roles

pytestmark = [pytest.mark.torch, pytest.mark.long]
PAGE = (ROOT / "docs/data.md").read_text(encoding="utf-8")
PART = PAGE.partition("## From a list of tools to a model")[2].partition("\n## ")[0]
(TEXT,) = re.findall(r"```json\n(.*?)```", PART, re.DOTALL)
(LINES,) = (block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PART, re.DOTALL))
# for a random model: enough to see that it runs
SHORT = {
    "make": ["-n", "16", "--extra-tools", "1"],
    "prep": ["--model", "{model}", "--test", "0.3", "--max-length", "4096"],
    "sft": ["--max-steps", "1", "-b", "1", "--max-length", "4096"],
    "eval": ["--limit", "2", "--max-new-tokens", "8", "--max-length", "4096"],
}


def test_a_list_of_tools_becomes_a_model_that_is_measured(tiny_model, tmp_path):
    assert json.loads(TEXT) == TOOLS
    (tmp_path / "tools.json").write_text(TEXT, encoding="utf-8")
    server = ScriptedServer(roles)
    try:
        for line in LINES:
            line = line.replace("http://localhost:8000/v1", server.url)
            line = line.replace("smollm2-135m", str(tiny_model))
            _, command, *words = shlex.split(line)
            more = [word.format(model=tiny_model) for word in SHORT[command]]
            done = agentlite(command, *words, *more, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"
    finally:
        server.close()
    assert [shlex.split(line)[1] for line in LINES] == ["make", "prep", "sft", "eval"]
    figures = {
        name: json.loads((tmp_path / f"runs/default/{name}/done.json").read_text())["figures"]
        for name in ("make", "prep", "sft")
    }
    assert figures["make"]["kept"] >= 12 and figures["make"]["quality"]["difficulty"]
    assert figures["prep"]["read"] == figures["make"]["kept"] and not figures["prep"]["rejected"]
