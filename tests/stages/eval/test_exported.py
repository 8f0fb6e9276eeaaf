"""What an export wrote is asked the same as the model: a broken form is named with its cause."""

import json
import random
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from support.llama_cpp import CONVERT, SERVER

import agentlite
from agentlite.cli.main import group
from agentlite.core.errors import GATE, UserError
from agentlite.deploy.export import targets

WORDS = [
    "copper",
    "window",
    "seven",
    "garden",
    "lamp",
    "violet",
    "train",
    "paper",
    "stone",
    "river",
]
TIME = {"name": "get_time", "description": "The time.", "parameters": {"type": "object"}}
ANSWER = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace whose sft calls one tool, whatever it is asked."""
    run, chance = tmp_path_factory.mktemp("measured"), random.Random(1)
    call = {"id": "a", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    rows = [
        {
            "messages": [
                {"role": "user", "content": " ".join(chance.sample(WORDS, 6))},
                {"role": "assistant", "content": None, "tool_calls": [call]},
            ],
            "tools": [{"type": "function", "function": TIME}],
        }
        for _ in range(20)
    ]
    (run / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of = {"run": str(run), "profile": "cpu"}
    agentlite.prep(str(run / "rows.jsonl"), model=str(tiny_model), dev=0, test=0.5, **of)
    agentlite.sft(
        engine="hf",
        max_steps=100,
        lora_r=8,
        learning_rate=1e-2,
        lr_scheduler="constant",
        gradient_accumulation=1,
        warmup_ratio=0.0,
        **of,
    )
    agentlite.evaluate(model=["sft"], engine="hf", max_new_tokens=40, **of)
    return run


def export(run: Path, *options: object) -> None:
    words = ["export", "sft", "--run", *map(str, (run, *options))]
    group.main(words, "agentlite", standalone_mode=False)


def doubled(folder: Path, base: Path) -> None:
    before, merged = (load_file(path / "model.safetensors") for path in (base, folder))
    weights = {name: 2 * weight - before[name] for name, weight in merged.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def without_end(folder: Path, base: Path) -> None:
    for path in (folder / "generation_config.json", folder / "config.json"):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "eos_token_id": None}))


def of_another_template(folder: Path, base: Path) -> None:
    path = folder / "chat_template.jinja"
    text = path.read_text().replace("assistant\n'", "assistant'")
    path.write_text(text.replace("['role'] + '\n'", "['role'] + ''"))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (None, ""),
        (doubled, "its weights are not those that were evaluated"),
        (without_end, "13 of its answers do not end: a stop token is missing"),
        (of_another_template, "its template writes the prompts otherwise"),
    ],
)
def test_a_merge_that_is_broken_is_named_with_its_cause(
    run, tiny_model, tmp_path, monkeypatch, capsys, damage, cause
):
    put = targets._put_tokenizer

    def put_and_damage(subject: Any, folder: Path) -> Any:
        proof = put(subject, folder)
        if damage:
            damage(folder, tiny_model)
        return proof

    monkeypatch.setattr(targets, "_put_tokenizer", put_and_damage)
    with pytest.raises(UserError, match=cause) if damage else nullcontext() as error:
        export(run, "--merged", tmp_path / "m")
    assert not error or error.value.exit_code == GATE
    assert ("merged over as evaluated +0.0 points" in capsys.readouterr().out) == (not cause)
    assert "exact_call: merged over as evaluated" in (tmp_path / "m/README.md").read_text()


@pytest.mark.parametrize("answer", [ANSWER, "The time is unknown."])
def test_a_gguf_file_is_asked_through_the_server_of_llama_cpp(run, tmp_path, capsys, answer):
    server = tmp_path / "llama.cpp/build/bin/llama-server"
    server.parent.mkdir(parents=True)
    server.write_text(SERVER.format(python=sys.executable, answer=answer))
    server.chmod(0o755)
    (tmp_path / "llama.cpp/convert_hf_to_gguf.py").write_text(CONVERT.format(bos=False, change=""))
    options = ("--gguf", tmp_path / "m.gguf", "--llama-cpp", tmp_path / "llama.cpp", "--check", 9)
    cause = r"f16 answers worse .* merged is not worse"
    with nullcontext() if answer == ANSWER else pytest.raises(UserError, match=cause):
        export(run, *options)
    assert capsys.readouterr().out.count("9 of 9 answers") == 1 + (answer == ANSWER)
    assert not list(tmp_path.glob("m/*"))  # what was converted is gone
