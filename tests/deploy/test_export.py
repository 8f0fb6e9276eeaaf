"""What is exported says what the stage says, renders as in training, and replaces nothing that is
not its own.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.examples import sample
from support.llama_cpp import CONVERT
from support.samples import DATA
from support.shipped_templates import shipped, with_marks

import agentlite
from agentlite.cli.main import group
from agentlite.core.errors import UserError
from agentlite.deploy.export.exported_model import ExportedModel
from agentlite.deploy.export.proof import dialogs, goldens, minijinja_writer, prove, trained_rows
from agentlite.deploy.export.targets import MENTION, mention
from agentlite.engine.load import Loading, load
from agentlite.rendering import PROTOCOLS, mixture_of
from agentlite.rendering.template import RESULT, TOOLS, USER, Template, call_turn, render_source
from agentlite.workspace.lookup import Source, find_model

ROWS = str(DATA / "weather.jsonl")
SHORT: dict[str, Any] = {
    "engine": "hf",
    "learning_rate": 1e-2,
    "max_steps": 3,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "warmup_ratio": 0.0,
    "lora_r": 4,
    "profile": "cpu",
}


def export(run: Path, *options: object, model: str = "sft") -> None:
    words = ["export", model, "--run", *map(str, (run, *options))]
    group.main(words, "agentlite", standalone_mode=False)


def refused(run: Path, *options: object) -> UserError:
    with pytest.raises(UserError) as error:
        export(run, *options)
    return error.value


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace with prep, sft and eval on the tiny model."""
    run = tmp_path_factory.mktemp("export") / "run"
    agentlite.prep(
        ROWS, run=str(run), model=str(tiny_model), seed=2, test=0.4, dev=0, profile="cpu"
    )
    agentlite.sft(run=str(run), **SHORT)
    agentlite.evaluate(
        run=str(run), model=[str(tiny_model), "sft"], engine="hf", max_new_tokens=6, profile="cpu"
    )
    return run


@pytest.fixture(scope="module")
def merged(run, tmp_path_factory):
    target = tmp_path_factory.mktemp("merged") / "weather model"
    export(run, "--merged", target)
    return target


# --- the proof ---


def test_the_dialogs_are_twenty_and_every_protocol_writes_all_that_it_can_hold(smollm2):
    assert len({record.id for record in dialogs().values()}) == 20
    for name in PROTOCOLS.keys() - {"chat"}:
        expected = trained_rows(smollm2, goldens(mixture_of(name, smollm2)))
        texts = {tuple(row.text for row in rows) for _, rows in expected}
        assert len(texts) == (20 if PROTOCOLS[name].parallel_calls else 19)
    assert len(goldens(mixture_of("hermes=2,react", smollm2))) == 40


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
        written_by = ["hermes", "react", "ms-agent", "toolllama", "autogpt", "kuaiagent-zh"]
        for protocol in [*written_by, *(["chat"] if template.prints_calls else [])]:
            proof = prove(
                template,
                goldens(mixture_of(protocol, template)),
                {"minijinja": minijinja_writer(template)},
            )
            assert proof.dialogs >= 19


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
        prove(template, goldens(mixture_of("chat", template)), {"minijinja": other})
    assert error.value.exit_code == 5


def test_an_export_whose_template_differs_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "agentlite.deploy.export.targets.minijinja_writer", lambda template: lambda *_: "otherwise"
    )
    error = refused(run, "--merged", tmp_path / "m")
    assert error.exit_code == 5 and "'a question'" in str(error)
    assert not list(tmp_path.iterdir())


# --- merged weights ---


def test_eval_of_the_merged_model_predicts_what_the_stage_does(run, merged):
    result = agentlite.evaluate(
        run=str(run),
        model=["sft", str(merged)],
        engine="hf",
        max_new_tokens=6,
        profile="cpu",
        out="eval-merged",
    )
    folder = run / "eval-merged/prep"
    ours, theirs = (
        [{**json.loads(line), "model": ""} for line in (path / "answers.jsonl").open()]
        for path in (folder / "sft", next(folder.glob("*weather*")))
    )
    assert len(ours) > 2 and ours == theirs
    assert len(result.figures) == 2


def test_the_folder_says_what_it_is(run, merged):
    mark = json.loads((merged / "export.json").read_bytes())
    assert mark["lineage"][1:] == ["sft"]
    assert mark["proof"]["renderers"] == ["transformers", "minijinja"]
    assert mark["outputs"].keys() | {"export.json"} == {path.name for path in merged.iterdir()}
    digest = json.loads((run / "prep/done.json").read_bytes())["outputs"]["train.jsonl"]
    card = (merged / "README.md").read_text(encoding="utf-8")
    assert mark["data"]["prep"]["train.jsonl"] == digest and digest in card
    assert "|  | tiny-model | sft |" in card  # the base beside it
    assert "Protocol hermes" in card and "learning_rate 0.01" in card and "<tool_call>" in card
    assert str(run.parent) not in card and "pytest" not in card  # no folder of this machine
    assert "leaderboard" not in card
    assert find_model(str(merged), run).settings["protocol"] == "hermes"


# --- the adapter ---


def test_peft_finds_the_base_of_the_adapter(run, tiny_model, tmp_path):
    import torch
    from peft import AutoPeftModelForCausalLM

    export(run, "--adapter", tmp_path / "a")
    config = json.loads((tmp_path / "a/adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == str(tiny_model.resolve())
    ids = torch.tensor([[5, 6, 7]])
    theirs = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "a").eval()
    ours = load(find_model("sft", run), Loading("hf", 64), trainable=False).model.eval()
    with torch.no_grad():
        assert torch.equal(theirs(input_ids=ids).logits, ours(input_ids=ids).logits)


# --- GGUF ---


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
    options = ("--llama-cpp", llama_cpp(), "--outtype", "bf16", "--json")
    export(run, "--gguf", target, *options)
    result = json.loads(capsys.readouterr().out)
    (model, *arguments), files = json.loads((tmp_path / "llama.cpp/told.json").read_bytes())
    assert Path(model).name == "weather"  # llama.cpp puts it into the file as its name
    assert arguments[0] == "--outfile" and arguments[2:] == ["--outtype", "bf16"]
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= {*files}
    assert target.read_bytes()[:4] == b"GGUF"
    assert result["type"] == "bf16" and result["bytes"].keys() == {
        f"weather.gguf{end}" for end in ("", ".md", ".json")
    }
    assert {path.name for path in target.parent.iterdir()} == result["bytes"].keys()
    assert refused(run, "--gguf", target, "--llama-cpp", llama_cpp()).exit_code == 3
    export(run, "--gguf", target, "--llama-cpp", llama_cpp(), "--force")
    target.with_name("weather.gguf.json").unlink()  # now it could be anybody's
    assert refused(run, "--gguf", target, "--llama-cpp", llama_cpp(), "--force").exit_code == 3


# --- tools given to the exported template ---


@pytest.mark.parametrize(("name", "source"), [("", ""), *sample(9, list(shipped()))])
def test_tools_given_to_the_exported_template_are_written_as_in_training(name, source, smollm2):
    template = with_marks(name, source, smollm2.tokenizer) if source else smollm2
    mixture = mixture_of("hermes", template)
    subject = ExportedModel(name, Source("", "", None, ""), template, mixture, [])
    exported = subject.exported_template
    if exported is template:  # it prints tools itself, or takes no plain turns
        assert template.prints_tools or any(template.thought_keys) or template.takes_parts
        return
    assert exported.prints_tools and exported.prints_calls
    if "endgeneration" not in source:  # a tag for trainers, which servers do not know
        prove(template, goldens(mixture), {"minijinja": minijinja_writer(exported)}, exported)
    as_text, bare = (call_turn("look", arguments={"at": "é"}) for _ in range(2))
    as_text["tool_calls"][0]["function"]["arguments"] = '{"at": "é"}'
    bare["tool_calls"][0] = bare["tool_calls"][0]["function"]
    part = [{"type": "text", "text": ""}]
    given = [
        render_source(
            exported.chat_template,
            messages=[USER, {**message, "content": content}, RESULT],
            tools=TOOLS,
            add_generation_prompt=True,
            **exported.special,
        )
        for message, content in ((as_text, ""), (as_text, None), (bare, part))
    ]
    assert len(set(given)) == 1
    late = [USER, {"role": "system", "content": "Be brief."}]
    assert exported.probe(late) == template.probe(late), "without tools nothing is changed"
    assert "Be brief." in exported.render(late, TOOLS).partition(USER["content"])[0]
    if not source:  # a client may leave out the beginning of a dialog
        assert exported.render([RESULT, USER], TOOLS).count("<tool_response>") == 1


# --- Ollama ---


def test_ollama_takes_any_chat_template_that_mentions_tools_and_the_mention_prints_nothing(smollm2):
    for name, source in sample(9, list(shipped())):
        template = with_marks(name, source, smollm2.tokenizer)
        assert not mention(mention(source) + source)
        mixture = mixture_of("react", template)
        subject = ExportedModel(name, Source("", "", None, ""), template, mixture, [])
        plain = subject.exported_template
        exported = subject._replace(mention=MENTION).exported_template
        assert exported.chat_template.startswith(MENTION)
        assert exported.probe([USER], prompt=True) == plain.probe([USER], prompt=True)


def test_the_ollama_folder_holds_what_a_modelfile_names(run, llama_cpp, tmp_path, capsys):
    options = ("--llama-cpp", llama_cpp(), "--json")
    export(run, "--ollama", tmp_path / "o", *options)
    result = json.loads(capsys.readouterr().out)
    text = (tmp_path / "o/Modelfile").read_text(encoding="utf-8")
    assert result["bytes"].keys() == {"Modelfile", "model.gguf", "README.md", "export.json"}
    assert text.startswith("FROM ./model.gguf\nREQUIRES 0.30.0\n") and "TEMPLATE" not in text
    assert 'PARAMETER stop "<|im_end|>"\n' in text
    assert "PARAMETER num_ctx 2048\n" in text and "PARAMETER repeat_penalty 1\n" in text
    theirs = CONVERT.format(bos=False, change="").replace('"llama"', '"gemma4"')
    error = refused(run, "--ollama", tmp_path / "g", "--llama-cpp", llama_cpp(script=theirs))
    assert "gemma4" in str(error) and error.exit_code == 5 and not (tmp_path / "g").exists()


# --- what cannot be ---


def test_only_what_export_made_is_replaced(run, merged, tmp_path):
    target = tmp_path / "m"
    target.mkdir()
    export(run, "--adapter", target)  # an empty folder is as good as none
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    error = refused(run, "--merged", target)
    assert "earlier export" in str(error) and "--force" in error.fix and error.exit_code == 3
    (target / "notes.txt").write_text("mine", encoding="utf-8")
    assert "notes.txt" in str(refused(run, "--merged", target, "--force"))
    (target / "notes.txt").unlink()
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before
    export(run, "--merged", target, "--force")
    assert (target / "model.safetensors").exists() and not (target / "adapter_config.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
