"""What is exported says what the stage says, renders as in training, and replaces nothing that is
not its own.
"""

import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.examples import pairs, turn
from support.go_templates import execute
from support.samples import DATA, ROOT, with_template

import agentlite
from agentlite.cli.main import group
from agentlite.core.errors import UserError
from agentlite.deploy.export.golden_dialogs import dialogs, goldens
from agentlite.deploy.export.ollama import (
    go_template,
    modelfile,
    turns_of,
    with_results,
    without_bos,
)
from agentlite.deploy.export.verify import minijinja_writer, prove
from agentlite.engine.decoding import Decoding
from agentlite.engine.generate import generate
from agentlite.engine.load import Loaded, Loading, load
from agentlite.rendering import PROTOCOLS, render, settled
from agentlite.rendering.template import Template
from agentlite.scoring.metrics.tool_calls import METRICS
from agentlite.workspace.lineage import setting_of
from agentlite.workspace.model_source import find_model, load_template

ROWS = str(DATA / "weather.jsonl")
SHORT: dict[str, Any] = {
    "max_steps": 3,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "warmup_ratio": 0.0,
    "lora_r": 4,
    "profile": "cpu",
}
QUESTIONS = (
    "Is it wet in Oslo?",
    "What is 2 + 2?",
    "Name a fruit.",
    "Who wrote Faust?",
    "Say hello in French.",
    "Count.",
    "What is the capital of Peru?",
    "Is water wet?",
    "Write a haiku.",
    "What day follows Monday?",
    "Translate: Haus.",
    "How tall is Everest?",
    "Tell a joke.",
    "What is DNA?",
    "Name a planet.",
    "What is Python?",
    "Where is Lyon?",
    "What time is it in Lima?",
    "Book a table for two.",
    "Why is the sky blue?",
)


def export(*arguments: object) -> None:
    group.main(["export", *map(str, arguments)], "agentlite", standalone_mode=False)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    export(*arguments, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(*arguments: object) -> UserError:
    with pytest.raises(UserError) as error:
        export(*arguments)
    return error.value


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace with prep, sft and eval on the tiny model."""
    run = tmp_path_factory.mktemp("export") / "run"
    agentlite.prep(
        ROWS, run=str(run), model=str(tiny_model), seed=2, test=0.4, dev=0, profile="cpu"
    )
    agentlite.sft(run=str(run), engine="hf", learning_rate=1e-2, **SHORT)
    agentlite.evaluate(
        run=str(run), model=[str(tiny_model), "sft"], engine="hf", max_new_tokens=6, profile="cpu"
    )
    return run


@pytest.fixture(scope="module")
def merged(run, tmp_path_factory):
    target = tmp_path_factory.mktemp("merged") / "weather model"
    export("sft", "--run", run, "--merged", target)
    return target


# --- the proof ---


def test_the_dialogs_are_twenty_and_every_protocol_writes_all_of_them(smollm2):
    for several in (True, False):
        assert len({record.id for record in dialogs(several).values()}) == 20
    for name in PROTOCOLS.keys() - {"chat"}:
        golden = goldens(settled(name, smollm2))
        assert (
            len(
                {
                    tuple(row.text for row in render(one.record, one.protocol, smollm2))
                    for one in golden
                }
            )
            == 20
        )
    assert len(goldens(settled("hermes=2,react", smollm2))) == 40


LLAMA3 = """{{- bos_token }}{% if not date_string is defined %}
{%- set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0]['role'] == 'system' %}{% set start = messages[0]['content'].strip() %}
{%- set messages = messages[1:] %}
{%- else %}{% set start = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday: ' + date_string + '\n\n' + start + '<|im_end|>' }}
{%- for message in messages %}{% if message.role not in ('user', 'assistant') and message.role.startswith('x') %}
{{- raise_exception('no such role') }}{% endif %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""  # noqa: E501  (verbatim text)


def written(template: Template, chat_template: str) -> Template:
    return Template(
        "other",
        template.tokenizer,
        chat_template,
        {**template.special, "bos_token": "<|endoftext|>"},
    )


@pytest.mark.long
def test_a_renderer_that_is_not_pythons_writes_the_same(templates):
    for template in (*templates.values(), written(templates["smollm2"], LLAMA3)):
        for protocol in (
            "hermes",
            "react",
            "ms-agent",
            "toolllama",
            "autogpt",
            "kuaiagent-zh",
            *(["chat"] if template.takes_tools else []),
        ):
            proof = prove(
                template,
                goldens(settled(protocol, template)),
                {"minijinja": minijinja_writer(template)},
            )
            assert proof.dialogs == 20


def refusing(template: Template, condition: str) -> Template:
    """The same, but for messages of which the condition holds."""
    check = f"{{% if {condition} %}}{{{{ raise_exception('not with me') }}}}{{% endif %}}"
    return written(
        template, f"{{% for message in messages %}}{check}{{% endfor %}}{template.chat_template}"
    )


def test_the_proof_counts_the_dialogs_that_were_compared_and_names_the_others(templates):
    template = refusing(templates["smollm2"], "message.content == 'Quite sure.'")
    proof = prove(
        template,
        goldens(settled("hermes", template)),
        {"minijinja": minijinja_writer(template)},
    )
    assert proof == (19, ["minijinja"], ["two questions under a system turn"])


def test_a_template_that_takes_only_ids_of_nine_letters_and_digits_writes_every_dialog(templates):
    """As those of Mistral."""
    calls = "message.tool_calls and message.tool_calls[0]"
    template = refusing(templates["tools"], f"{calls}.id | length != 9")
    proof = prove(template, goldens(settled("chat", template)), {})
    assert (proof.dialogs, proof.left_out) == (20, [])
    ids = [c.id for one in dialogs(True).values() for m in one.messages for c in m.calls]
    assert ids and all(id.isascii() and id.isalnum() for id in ids)


@pytest.mark.parametrize(
    ("before", "after", "dialog"),
    [
        ("message.content", "message.content | trim", "lines, and blanks around them"),
        ("| tojson", "| string", "tools, and an answer"),
        ("</tool_call>", "</tool_call>\n", "a call"),
        ("message.content", "message.content | e", "quotes and marks"),
        ("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant{% endif %}", "a question"),
    ],
)
def test_a_template_that_writes_otherwise_is_refused_by_the_first_dialog_that_shows_it(
    templates, before, after, dialog
):
    template = templates["tools"]
    assert before in template.chat_template
    other = minijinja_writer(written(template, template.chat_template.replace(before, after)))
    assert other
    with pytest.raises(UserError, match=f"minijinja writes the dialog '{dialog}'") as error:
        prove(template, goldens(settled("chat", template)), {"minijinja": other})
    assert error.value.exit_code == 5


def test_an_export_whose_template_differs_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "agentlite.deploy.export.targets.minijinja_writer", lambda template: lambda *_: "otherwise"
    )
    error = refused("sft", "--run", run, "--merged", tmp_path / "m")
    assert error.exit_code == 5 and "'a question'" in str(error)
    assert not list(tmp_path.iterdir())


def test_without_minijinja_it_is_said(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "minijinja", None)
    export("sft", "--run", run, "--adapter", tmp_path / "a", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["proof"]["renderers"] == ["transformers"]
    assert "no second renderer was tried" in err


# --- merged weights ---


@turn(0, of=2)
@pytest.mark.slow
def test_the_merged_model_says_what_base_and_adapter_say(tmp_path):
    """The figure: 20 prompts, greedily, the real model, an adapter that changed it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = str(tmp_path / "run")
    agentlite.prep(ROWS, run=run, model="smollm2-135m", seed=3, profile="cpu")
    agentlite.sft(run=run, engine="hf", learning_rate=5e-3, **SHORT)
    export("sft", "--run", run, "--merged", tmp_path / "m")
    source = find_model("sft", Path(run))
    template = load_template("smollm2-135m")
    ids = [
        template.encode(template.render([{"role": "user", "content": text}], prompt=True))
        for text in QUESTIONS
    ]
    decoding = Decoding(12).under(template)

    def say(loaded: Loaded) -> list[tuple[str, int]]:
        (batch,) = generate(loaded, ids, decoding, batch_size=20)
        return [(one.text, one.new_tokens) for one in sorted(batch)]

    adapted = load(source, Loading("hf", 256), trainable=False)
    assert type(adapted.model).__name__.startswith("Peft")
    both = say(adapted)
    with adapted.model.disable_adapter():
        base = say(adapted)
    folder = str(tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    alone = say(Loaded(AutoModelForCausalLM.from_pretrained(folder), tokenizer))
    assert alone == both
    assert sum(one != other for one, other in zip(both, base, strict=True)) > 10
    facts = json.loads((tmp_path / "m" / "generation_config.json").read_bytes())
    assert facts["eos_token_id"] == 2


def test_an_exported_model_ends_where_its_turns_end_whatever_its_base_says(
    run, tiny_model, smollm2, tmp_path
):
    base, target = tmp_path / "base", tmp_path / "exported"
    shutil.copytree(tiny_model, base)
    names = ("config.json", "generation_config.json")
    for name in names:
        content = json.loads((base / name).read_bytes()) | {"eos_token_id": 0}
        (base / name).write_text(json.dumps(content), encoding="utf-8")
    export(base, "--run", run, "--merged", target)
    end = smollm2.token_id(smollm2.turn_end)
    assert end != 0
    for name in names:
        assert json.loads((target / name).read_bytes())["eos_token_id"] == [end, 0]


def test_eval_of_the_merged_model_predicts_what_the_stage_does(run, merged):
    result = agentlite.evaluate(
        run=str(run),
        model=["sft", str(merged)],
        engine="hf",
        max_new_tokens=6,
        profile="cpu",
        out="eval-merged",
    )
    ours, theirs = (
        [
            {**json.loads(line), "model": ""}
            for line in (run / "eval-merged/prep" / name / "answers.jsonl").open()
        ]
        for name in (
            "sft",
            next(
                path.name for path in (run / "eval-merged/prep").iterdir() if "weather" in path.name
            ),
        )
    )
    assert len(ours) > 2 and ours == theirs
    assert len(result.figures) == 2


def test_the_folder_says_what_it_is(run, merged):
    mark = json.loads((merged / "export.json").read_bytes())
    assert mark["lineage"][1:] == ["sft"] and mark["proof"]["renderers"] == [
        "transformers",
        "minijinja",
    ]
    assert mark["outputs"].keys() | {"export.json"} == {path.name for path in merged.iterdir()}
    digest = json.loads((run / "prep/done.json").read_bytes())["outputs"]["train.jsonl"]
    card = (merged / "README.md").read_text(encoding="utf-8")
    assert mark["data"]["prep"]["train.jsonl"] == digest and digest in card
    figures = json.loads((run / "eval/prep/sft/metrics.json").read_bytes())["metrics"][
        "call_decision"
    ]
    assert (
        f"{100 * figures['mean']:.1f} % [{100 * figures['low']:.1f}, {100 * figures['high']:.1f}]"
        in card
    )
    assert set(METRICS) & {line.split(" | ")[0].strip("| ") for line in card.splitlines()}
    assert "|  | tiny-model | sft |" in card  # the base beside it
    for word in (
        "Protocol hermes",
        "learning_rate 0.01",
        "<tool_call>",
        "transformers 5",
        "Licence of the base: not known",
    ):
        assert word in card, word
    assert str(run.parent) not in card and "pytest" not in card  # no folder of this machine
    assert "leaderboard" not in card
    assert setting_of(str(merged), "protocol", run) == "hermes"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in merged.iterdir()}
    assert len(modes) == 1
    assert says_its_head_is_its_embeddings(merged)


def test_the_same_export_again_has_the_same_bytes(run, tmp_path):
    for place in ("one", "two"):
        export("sft", "--run", run, "--merged", tmp_path / place / "m")
    for path in (tmp_path / "one/m").iterdir():
        assert path.read_bytes() == (tmp_path / "two/m" / path.name).read_bytes(), path.name


def test_bfcl_is_called_a_demonstration(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run/prep/plan.json"
    plan = json.loads(path.read_bytes())
    plan["settings"]["sources"].insert(0, "bfcl:multiple")
    path.write_text(json.dumps(plan), encoding="utf-8")
    refusal = refused("sft", "--run", tmp_path / "run", "--adapter", tmp_path / "a")
    assert "was changed since it was written" in str(refusal)
    path.write_text(json.dumps({**plan, "seal": ""}), encoding="utf-8")
    export("sft", "--run", tmp_path / "run", "--adapter", tmp_path / "a")
    assert "not a leaderboard score" in (tmp_path / "a/README.md").read_text(encoding="utf-8")


def test_all_weights_are_exported_as_they_are(run, tmp_path):
    agentlite.sft(run=str(run), full=True, engine="hf", out="full", **{**SHORT, "lora_r": 16})
    export("full", "--run", run, "--merged", tmp_path / "m")
    weights = "model.safetensors"
    assert (tmp_path / "m" / weights).read_bytes() == (run / "full/model" / weights).read_bytes()
    assert "has no adapter" in str(refused("full", "--run", run, "--adapter", tmp_path / "a"))


def test_an_adapter_on_tied_embeddings_leaves_the_head_as_it_was(run, tmp_path):
    """The tiny model's head is its embeddings; an adapter on the one does not change the other."""
    import torch
    from transformers import AutoModelForCausalLM

    agentlite.sft(
        run=str(run),
        engine="hf",
        learning_rate=1e-2,
        lora_target_modules=("all",),
        out="all",
        **SHORT,
    )
    export("all", "--run", run, "--merged", tmp_path / "m")
    ids = torch.tensor([load_template("smollm2-135m").encode("Is it wet in Oslo?")])
    source = find_model("all", run)
    with torch.no_grad():
        adapted = (
            load(source, Loading("hf", 64), trainable=False).model.eval()(input_ids=ids).logits
        )
        base = (
            load(source._replace(adapter=None), Loading("hf", 64), trainable=False)
            .model.eval()(input_ids=ids)
            .logits
        )
        alone = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()(input_ids=ids).logits
    assert not torch.allclose(adapted, base, atol=1e-3)
    assert torch.allclose(alone, adapted, atol=1e-5)
    assert not says_its_head_is_its_embeddings(tmp_path / "m")


def says_its_head_is_its_embeddings(folder: Path) -> bool:
    """As config.json says, which llama.cpp and servers believe; the weights must agree with it."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as weights:
        has_head = "lm_head.weight" in weights.keys()  # noqa: SIM118  (no mapping)
    tied = json.loads((folder / "config.json").read_bytes())["tie_word_embeddings"]
    assert tied != has_head
    return bool(tied)


def as_if_trained_on(run: Path, base: str, **settings: object) -> None:
    path = run / "sft" / "plan.json"
    plan = json.loads(path.read_bytes()) | {"seal": ""}
    plan["settings"] |= {"model": base, **settings}
    plan["inputs"]["model"] = find_model(base, run).digest
    path.write_text(json.dumps(plan), encoding="utf-8")


def test_weights_keep_the_precision_of_the_base(run, tiny_model, tmp_path):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    base = tmp_path / "half"
    shutil.copytree(tiny_model, base)
    AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).save_pretrained(base)
    shutil.copytree(run, tmp_path / "run")
    as_if_trained_on(tmp_path / "run", str(base), load_in_4bit=True)
    export("sft", "--run", tmp_path / "run", "--merged", tmp_path / "m")
    found = load_file(tmp_path / "m/model.safetensors")
    assert {value.dtype for value in found.values()} == {torch.bfloat16}
    before = load_file(base / "model.safetensors")
    assert any(not value.equal(before[name]) for name, value in found.items())
    card = (tmp_path / "m/README.md").read_text(encoding="utf-8")
    assert "in their own bfloat16" in card and "rounded to 4 or 8 bits" in card


# --- the adapter ---


def test_peft_finds_the_base_of_the_adapter(run, tiny_model, tmp_path):
    import torch
    from peft import AutoPeftModelForCausalLM

    export("sft", "--run", run, "--adapter", tmp_path / "a")
    config = json.loads((tmp_path / "a/adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == str(tiny_model.resolve())
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        theirs = (
            AutoPeftModelForCausalLM.from_pretrained(tmp_path / "a").eval()(input_ids=ids).logits
        )
        ours = (
            load(find_model("sft", run), Loading("hf", 64), trainable=False)
            .model.eval()(input_ids=ids)
            .logits
        )
    assert torch.equal(theirs, ours)


def test_the_embedded_base_is_named_by_where_it_came_from(run, tmp_path):
    """Only files are read here: an adapter of the tiny model does for one of SmolLM2."""
    shutil.copytree(run, tmp_path / "run")
    as_if_trained_on(tmp_path / "run", "smollm2-135m")
    export("sft", "--run", tmp_path / "run", "--adapter", tmp_path / "a")
    config = json.loads((tmp_path / "a/adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    card = (tmp_path / "a/README.md").read_text(encoding="utf-8")
    assert "license: apache-2.0" in card and "not quite those of the hub" in card


# --- GGUF ---

CONVERT = """import json, sys
from pathlib import Path
from gguf import GGUFWriter

source, out = Path(sys.argv[1]), sys.argv[sys.argv.index("--outfile") + 1]
Path(__file__).with_name("told.json").write_text(json.dumps([sys.argv[1:], sorted(p.name for p in source.iterdir())]))
writer = GGUFWriter(out, "llama")
writer.add_tokenizer_model("gpt2")
writer.add_eos_token_id(2)
writer.add_add_bos_token({bos})
writer.add_chat_template((source / "chat_template.jinja").read_text(encoding="utf-8"){change})
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
"""  # noqa: E501  (verbatim text)
QUANTIZE = """#!/bin/sh
cp "$1" "$2"; echo "$3" > "$(dirname "$0")/told"
"""


@pytest.fixture
def llama_cpp(tmp_path) -> Callable[..., Path]:
    def make(bos: bool = False, change: str = "", script: str = "") -> Path:
        folder = tmp_path / "llama.cpp"
        (folder / "build/bin").mkdir(parents=True, exist_ok=True)
        (folder / "convert_hf_to_gguf.py").write_text(
            script or CONVERT.format(bos=bos, change=change), encoding="utf-8"
        )
        return folder

    return make


def test_gguf_is_made_by_the_llama_cpp_that_is_named(run, llama_cpp, tmp_path, capsys):
    target = tmp_path / "out" / "weather.gguf"
    result = told(
        capsys,
        "sft",
        "--run",
        run,
        "--gguf",
        target,
        "--llama-cpp",
        llama_cpp(),
        "--outtype",
        "bf16",
    )
    (model, *arguments), files = json.loads((tmp_path / "llama.cpp/told.json").read_bytes())
    assert Path(model).name == "weather"  # llama.cpp puts it into the file as its name
    assert arguments[0] == "--outfile" and arguments[2:] == ["--outtype", "bf16"]
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= set(
        files
    )
    assert target.read_bytes()[:4] == b"GGUF"
    assert result["type"] == "bf16" and result["bytes"].keys() == {
        f"weather.gguf{end}" for end in ("", ".md", ".json")
    }
    assert {path.name for path in target.parent.iterdir()} == result["bytes"].keys()
    assert refused("sft", "--run", run, "--gguf", target, "--llama-cpp", llama_cpp()).exit_code == 3
    export("sft", "--run", run, "--gguf", target, "--llama-cpp", llama_cpp(), "--force")
    target.with_name("weather.gguf.json").unlink()  # now it could be anybody's
    assert (
        refused(
            "sft", "--run", run, "--gguf", target, "--llama-cpp", llama_cpp(), "--force"
        ).exit_code
        == 3
    )


def test_it_is_quantized_if_asked(run, llama_cpp, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_CPP", str(llama_cpp()))
    arguments = ("sft", "--run", run, "--gguf", tmp_path / "w.gguf", "--quantize", "Q4_K_M")
    error = refused(*arguments)
    assert "it is not built" in str(error) and "--target llama-quantize" in error.fix
    program = tmp_path / "llama.cpp/build/bin/llama-quantize"
    program.write_text(QUANTIZE, encoding="utf-8")
    program.chmod(0o755)
    export(*arguments)
    assert (program.parent / "told").read_text().strip() == "Q4_K_M"
    assert json.loads((tmp_path / "w.gguf.json").read_bytes())["type"] == "Q4_K_M"


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (
            {"script": "raise SystemExit('Model FancyForCausalLM is not supported')"},
            "FancyForCausalLM is not supported",
        ),
        ({"script": "print('nothing to do')"}, "wrote no model.gguf: nothing to do"),
        ({"script": "import sys; open(sys.argv[3], 'w').write('x' * 99)"}, "is not a GGUF file"),
        ({"change": " + ' '"}, "its chat template is not the one of training"),
    ],
)
def test_a_conversion_that_fails_is_told_and_leaves_nothing(
    made, problem, run, llama_cpp, tmp_path
):
    target = tmp_path / "out" / "w.gguf"
    error = refused("sft", "--run", run, "--gguf", target, "--llama-cpp", llama_cpp(**made))
    assert problem in str(error) and error.exit_code == 5
    assert not list(target.parent.iterdir())


def test_without_llama_cpp_the_way_to_it_is_told(run, tmp_path, monkeypatch):
    monkeypatch.delenv("LLAMA_CPP", raising=False)
    error = refused("sft", "--run", run, "--gguf", tmp_path / "w.gguf")
    assert "git clone" in error.fix and "--llama-cpp" in error.fix and error.exit_code == 2
    error = refused("sft", "--run", run, "--gguf", tmp_path / "w.gguf", "--llama-cpp", tmp_path)
    assert "holds no convert_hf_to_gguf.py" in str(error)


# --- Ollama ---


def prompted(
    template: Template, record: Any, protocol: Any
) -> list[tuple[list[dict[str, str]], str]]:
    """What the model is given at each step: messages, the last one begun where results stand inside
    it, and text.
    """
    seen: list[tuple[list[Any], bool, str]] = []

    class Noting(Template):
        def render(self, messages: Any, tools: Any = (), prompt: bool = False) -> str:
            text = super().render(messages, tools, prompt)
            seen.append((list(messages), prompt, text))
            return text

    rows = render(
        record, protocol, Noting("", template.tokenizer, template.chat_template, template.special)
    )
    found = [
        ([{"Role": m["role"], "Content": m["content"]} for m in messages], text)
        for messages, prompt, text in seen
        if prompt
    ]
    if protocol.inline:
        for messages, text in list(found):
            row = next(row for row in rows for span in row.spans if row.text[: span.start] == text)
            inside = [span.start for span in row.spans if span.start > len(text)]
            if inside and template.turn_end not in row.text[len(text) : inside[0]]:
                begun = {"Role": "assistant", "Content": row.text[len(text) : inside[0]]}
                found.append(([*messages, begun], row.text[: inside[0]]))
    return found


TURNWISE = {
    "smollm2": "",
    "llama 3": "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role "
    "}}<|end_header_id|>\n\n"
    "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt "
    "%}<|start_header_id|>assistant<|end_header_id|>"
    "\n\n{% endif %}",
    "zephyr": "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|im_end|>\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
}


@pytest.mark.parametrize(
    ("family", "name"), pairs(3, [*TURNWISE], [name for name in PROTOCOLS if name != "chat"])
)
def test_the_go_template_writes_every_prompt_of_training(family, name, smollm2):
    template = written(smollm2, TURNWISE[family]) if TURNWISE[family] else smollm2
    mixture = settled(name, template)
    protocol = mixture.protocols[name]
    turns = with_results(turns_of(template), protocol, template)
    go, count = go_template(turns), 0
    bare = go_template(without_bos(turns, "<|endoftext|>"))
    for golden in goldens(mixture):
        if any(message.content != message.content.strip() for message in golden.record.messages):
            continue
        for messages, text in prompted(template, golden.record, protocol):
            assert execute(go, messages) == text, golden.name
            assert execute(bare, messages) == text.removeprefix("<|endoftext|>")
            count += 1
    assert count >= 25
    if name == "react":
        assert any(
            messages[-1]["Role"] == "assistant"
            for golden in goldens(mixture)
            for messages, _ in prompted(template, golden.record, protocol)
        )


def test_a_result_may_be_a_turn_of_its_own(smollm2):
    hermes = settled("hermes", smollm2).protocols["hermes"]
    go = go_template(with_results(turns_of(smollm2), hermes, smollm2))
    asked = [
        {"Role": "system", "Content": "S"},
        {"Role": "user", "Content": "Q"},
        {"Role": "assistant", "Content": "C"},
    ]
    inside = {"Role": "user", "Content": "<tool_response>\n4 mm\n</tool_response>"}
    assert execute(go, [*asked, {"Role": "tool", "Content": "4 mm"}]) == execute(
        go, [*asked, inside]
    )


def test_the_ollama_folder_holds_what_a_modelfile_names(run, llama_cpp, tmp_path, capsys, smollm2):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([dialogs(True)["a call"].tools[0].schema]), encoding="utf-8")
    result = told(
        capsys,
        "sft",
        "--run",
        run,
        "--ollama",
        tmp_path / "o",
        "--llama-cpp",
        llama_cpp(),
        "--tools",
        tools,
    )
    text = (tmp_path / "o/Modelfile").read_text(encoding="utf-8")
    assert result["bytes"].keys() == {"Modelfile", "model.gguf", "README.md", "export.json"}
    assert "the texts in the Modelfile" in result["proof"]["renderers"]
    assert text.startswith("FROM ./model.gguf\n") and 'PARAMETER stop "<|im_end|>"\n' in text
    assert "PARAMETER num_ctx 2048\n" in text
    go, system = (text.split(f'{key} """')[1].split('"""')[0] for key in ("TEMPLATE", "SYSTEM"))
    record = dialogs(True)["a call"]
    ((_, prompt),) = prompted(smollm2, record, settled("hermes", smollm2).protocols["hermes"])
    messages = [
        {"Role": "system", "Content": system},
        {"Role": "user", "Content": record.messages[0].content},
    ]
    assert execute(go, messages) == prompt


def test_a_bos_that_llama_cpp_adds_is_not_written_twice(run, llama_cpp, tiny_model, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    (base / "chat_template.jinja").write_text(TURNWISE["llama 3"], encoding="utf-8")
    config = json.loads((base / "tokenizer_config.json").read_bytes())
    (base / "tokenizer_config.json").write_text(
        json.dumps({**config, "bos_token": "<|endoftext|>"}), encoding="utf-8"
    )
    for bos in (True, False):
        export(base, "--ollama", tmp_path / f"o{bos}", "--llama-cpp", llama_cpp(bos=bos))
        assert (
            "<|endoftext|>" in (tmp_path / f"o{bos}/Modelfile").read_text(encoding="utf-8")
        ) is not bos


def test_a_native_protocol_tells_its_tools_in_system(smollm2, tiny_model, llama_cpp, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    shutil.copyfile(ROOT / "tests/rendering/tools.jinja", base / "chat_template.jinja")
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([dialogs(True)["a call"].tools[0].schema]), encoding="utf-8")
    export(base, "--ollama", tmp_path / "o", "--llama-cpp", llama_cpp(), "--tools", tools)
    text = (tmp_path / "o/Modelfile").read_text(encoding="utf-8")
    go, system = (text.split(f'{key} """')[1].split('"""')[0] for key in ("TEMPLATE", "SYSTEM"))
    template, record = with_template(smollm2, "tools"), dialogs(True)["a call"]
    prompt = template.render(
        [{"role": "user", "content": "Q"}], [tool.schema for tool in record.tools], prompt=True
    )
    assert (
        execute(go, [{"Role": "system", "Content": system}, {"Role": "user", "Content": "Q"}])
        == prompt
    )


def test_what_ollama_cannot_hold_is_refused(smollm2, templates):
    with pytest.raises(UserError, match="does more than put texts around turns"):
        turns_of(
            written(
                smollm2, "{% for m in messages %}[{{ m.content | length }}]<|im_end|>{% endfor %}"
            )
        )
    turns = turns_of(smollm2)
    for text in (
        'a """ b',
        "a\u3000b",
        "a\u200bb",
    ):  # Ollama would end the text, or leave the sign out
        with pytest.raises(UserError, match="cannot hold"):
            modelfile("m.gguf", turns, ["<|im_end|>"], text, 2048)
    held = "a\tb\nc: 天气"
    assert f'SYSTEM """{held}"""' in modelfile("m.gguf", turns, ["<|im_end|>"], held, 2048)


MERGING = """{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]
{%- if loop.index0 == 1 and messages[0].role == 'system' %}{{ messages[0].content }} {% endif %}
{{- m.content }}<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""  # noqa: E501  (verbatim text)


def test_a_template_that_puts_the_system_text_into_a_question_has_no_ollama_template(
    tiny_model, llama_cpp, tmp_path
):
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    (base / "chat_template.jinja").write_text(MERGING, encoding="utf-8")
    error = refused(base, "--ollama", tmp_path / "o", "--llama-cpp", llama_cpp())
    assert "does more than put texts around turns" in str(error) and "--gguf" in error.fix


# --- what cannot be ---


def test_what_is_no_model_is_refused(run, merged, tmp_path):
    target = ("--run", run, "--merged", tmp_path / "m")
    assert "makes no model" in str(refused("prep", *target))
    assert "makes no model" in str(refused(run / "eval/prep/sft", *target))
    assert "holds no config.json" in str(refused(run / "eval", *target))
    assert "no model 'sfft'" in str(refused("sfft", *target))
    shutil.copytree(run / "sft", run / "half", dirs_exist_ok=True)
    (run / "half/done.json").unlink()
    assert "is not finished" in str(refused("half", *target))
    shutil.rmtree(run / "half")
    assert not (tmp_path / "m").exists()


def test_an_adapter_without_its_base_is_refused(run, tiny_model, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run/sft/plan.json"
    plan = json.loads(
        path.read_text(encoding="utf-8").replace(str(tiny_model), str(tmp_path / "gone"))
    )
    path.write_text(json.dumps({**plan, "seal": ""}), encoding="utf-8")
    error = refused("sft", "--run", tmp_path / "run", "--merged", tmp_path / "m")
    assert f"is an adapter on {tmp_path / 'gone'}, which cannot be found" in str(error)


def test_quantized_weights_take_no_adapter(run, tiny_model, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"load_in_4bit": True}}), "utf-8"
    )
    error = refused(base, "--merged", tmp_path / "m")
    assert "quantized" in str(error) and "--adapter" in error.fix


def test_one_target_is_asked_for():
    assert "no target is named." in str(refused("sft"))
    assert "--merged and --adapter at once" in str(
        refused("sft", "--merged", "a", "--adapter", "b")
    )


def test_only_what_export_made_is_replaced(run, merged, tmp_path):
    target = tmp_path / "m"
    target.mkdir()
    export("sft", "--run", run, "--adapter", target)  # an empty folder is as good as none
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    error = refused("sft", "--run", run, "--merged", target)
    assert "earlier export" in str(error) and "--force" in error.fix and error.exit_code == 3
    (target / "notes.txt").write_text("mine", encoding="utf-8")
    assert "notes.txt is not of an export" in str(
        refused("sft", "--run", run, "--merged", target, "--force")
    )
    (target / "notes.txt").unlink()
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before
    export("sft", "--run", run, "--merged", target, "--force")
    assert (target / "model.safetensors").exists() and not (target / "adapter_config.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_target_that_cannot_be_written_is_exit_74_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "agentlite.deploy.export.targets.merge", lambda *_: pytest.fail("it began to work")
    )
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert refused("sft", "--run", run, "--merged", tmp_path / "file" / "m").exit_code == 74
    mkdir = Path.mkdir

    def read_only(path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name == ".m.partial":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", read_only)
    error = refused("sft", "--run", run, "--merged", tmp_path / "m")
    assert (
        error.exit_code == 74
        and "Read-only file system" in str(error)
        and "a folder that you may write to" in error.fix
    )
    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 100)
    )
    error = refused("sft", "--run", run, "--merged", tmp_path / "m")
    assert error.exit_code == 74 and "are needed" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_tools_that_are_none_are_refused(run, llama_cpp, tmp_path):
    tools = tmp_path / "tools.json"
    arguments = (
        "sft",
        "--run",
        run,
        "--ollama",
        tmp_path / "o",
        "--llama-cpp",
        llama_cpp(),
        "--tools",
        tools,
    )
    assert "cannot be read" in str(refused(*arguments))
    for content, said in (("{", "is not JSON"), ('[{"name": 3}]', "E212"), ("[]", "holds no tool")):
        tools.write_text(content, encoding="utf-8")
        assert said in str(refused(*arguments))


def test_the_command_line_tells_it_in_a_table(run, tmp_path):
    command = [
        sys.executable,
        "-m",
        "agentlite",
        "export",
        "sft",
        "--run",
        str(run),
        "--adapter",
        str(tmp_path / "a"),
    ]
    done = processes.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("export: done in ")
    assert "20 dialogs as in training, by transformers, minijinja" in done.stdout
    again = processes.run(command, capture_output=True, text=True)
    assert (
        again.returncode == 3 and again.stderr.startswith("Error: ") and "--force" in again.stderr
    )
    assert not again.stdout
