"""An export without a model: folders that appear whole, llama.cpp, licences."""

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.generated_run import stage
from support.shipped_templates import shipped, with_marks

from agentlite.core.errors import DISK, MODEL, OTHER_PLAN, UserError
from agentlite.deploy.export import exported_model, llama_cpp, targets
from agentlite.deploy.export.atomic_folder import (
    next_to,
    put_files,
    put_folder,
    refuse_taken,
    writing,
)
from agentlite.deploy.export.exported_model import ExportedModel, licence, refuse_quantized
from agentlite.deploy.export.golden_dialogs import goldens
from agentlite.deploy.export.llama_cpp import (
    GgufFacts,
    LlamaCpp,
    convert,
    find_llama_cpp,
    read_facts,
)
from agentlite.deploy.export.ollama import turns_of
from agentlite.deploy.export.verify import prove_tokens
from agentlite.rendering import choose
from agentlite.report.read_run import Evaluation, read_run
from agentlite.workspace.model_source import Source


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    usage = shutil._ntuple_diskusage(10**12, 0, count)  # type: ignore[attr-defined]
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)


def test_a_folder_is_made_beside_the_target_and_gone_when_it_is_left(tmp_path, monkeypatch):
    target = tmp_path / "a/b/model"
    (tmp_path / "a/b/.model.partial").mkdir(parents=True)
    (tmp_path / "a/b/.model.partial/old").write_bytes(b"of a run that was killed")
    free(monkeypatch, 1000)
    with writing(target, 1000) as aside:
        assert aside.parent == target.parent and list(aside.iterdir()) == []
    assert list(target.parent.iterdir()) == []
    with pytest.raises(UserError, match=r"0\.0 GB are needed") as refused, writing(target, 1001):
        pass
    assert refused.value.exit_code == DISK and refused.value.location == str(target.parent)
    with pytest.raises(UserError, match="no more room") as refused, writing(target, 0):
        raise OSError(28, "no more room")
    assert refused.value.exit_code == DISK and list(target.parent.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), writing(target, 0):
        raise KeyboardInterrupt
    assert list(target.parent.iterdir()) == []


def test_a_tokenizer_that_cuts_any_text_of_the_dialogs_otherwise_is_no_export(smollm2):
    known = goldens(choose("hermes", smollm2))
    prove_tokens(smollm2, known, smollm2.encode)
    text = known[-1].record.messages[-1].content

    def other(given: str) -> list[int]:
        ids = smollm2.encode(given)
        return ids[:-1] if given == text else ids

    with pytest.raises(UserError, match="cuts a text of the dialog") as refused:
        prove_tokens(smollm2, known, other)
    assert refused.value.exit_code == MODEL


def test_the_folders_above_a_target_are_made(tmp_path):
    with writing(tmp_path / "a/b/model", 0) as aside:
        put_folder(aside, tmp_path / "a/b/model", {"kind": "merged"})
    assert (tmp_path / "a/b/model/export.json").exists()


def test_of_several_files_that_are_in_the_way_the_first_by_name_is_named(tmp_path):
    for name in ("c.txt", "export.json", "a.txt", "b.txt"):
        (tmp_path / name).write_text('{"outputs": {"a.txt": ""}}', encoding="utf-8")
    for force in (False, True):
        with pytest.raises(UserError, match=r"b\.txt is not of an export") as refused:
            refuse_taken(tmp_path, force)
        assert refused.value.exit_code == OTHER_PLAN


@pytest.mark.parametrize("earlier", [False, True])
def test_an_export_is_put_whole_into_the_place_of_the_one_before(tmp_path, earlier):
    target = tmp_path / "model"
    if earlier:
        target.mkdir()
        (target / "gone").write_bytes(b"of before")
    with writing(target, 0) as aside:
        (aside / "b").write_bytes(b"B")
        (aside / "a").write_bytes(b"A")
        (aside / "b").chmod(0o600)
        put_folder(aside, target, {"kind": "merged"})
    assert sorted(path.name for path in target.iterdir()) == ["a", "b", "export.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    mark = json.loads((target / "export.json").read_bytes())
    assert mark == {"kind": "merged", "outputs": {"a": sha256(b"A"), "b": sha256(b"B")}}
    mode = (target / "export.json").stat().st_mode
    assert {path.stat().st_mode for path in target.iterdir()} == {mode}


def test_files_are_put_in_their_places_and_the_mark_last(tmp_path, disk_calls):
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(name.encode())
    mark = next_to(tmp_path / "w.gguf", "json")
    assert mark.name == "w.gguf.json"
    files = {tmp_path / "x": tmp_path / "w.gguf", tmp_path / "y": tmp_path / "w.gguf.md"}
    put_files(files, mark, {"kind": "gguf"})
    expected = {"w.gguf": sha256(b"x"), "w.gguf.md": sha256(b"y")}
    assert json.loads(mark.read_bytes()) == {"kind": "gguf", "outputs": expected}
    folder = f"fsync {tmp_path.name}"
    assert disk_calls == [
        *("fsync x", "fsync y", folder),
        *("rename x w.gguf", "rename y w.gguf.md"),
        *("fsync .w.gguf.json.partial", "rename .w.gguf.json.partial w.gguf.json", folder),
    ]


def test_a_folder_is_named_once_all_of_it_is_on_the_disk(tmp_path, disk_calls):
    target = tmp_path / "model"
    for earlier in ("model", ".model.partial.earlier"):  # the second: of a run that was killed
        (tmp_path / earlier).mkdir()
        (tmp_path / earlier / "gone").write_bytes(b"of before")
    with writing(target, 0) as aside:
        for name in ("b", "a"):
            (aside / name).write_bytes(b"")
        put_folder(aside, target, {})
    named = disk_calls.index("rename .model.partial model")
    before, after = disk_calls[:named], disk_calls[named:]
    assert {"fsync a", "fsync b", "fsync .export.json.partial", "fsync .model.partial"} < {*before}
    assert f"fsync {tmp_path.name}" in after
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (target / "gone").exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_only_an_earlier_export_is_replaced_and_only_by_force(tmp_path, kind, force):
    target = tmp_path / "made"
    refuse_taken(target, force)
    if kind == "folder":
        target.mkdir()
        refuse_taken(target, force)
        (target / "a").write_bytes(b"")
        mark = target / "export.json"
    else:
        target.write_bytes(b"")
        mark = tmp_path / "made.json"
    for content in (None, "{", "[]", "{}"):
        if content:
            mark.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match="is not of an export") as refused:
            refuse_taken(target, force)
        assert refused.value.exit_code == OTHER_PLAN
    mark.write_text(json.dumps({"outputs": {"a": "", "made": ""}}), encoding="utf-8")
    if force:
        refuse_taken(target, force)
    else:
        with pytest.raises(UserError, match="from an earlier export"):
            refuse_taken(target, force)


@pytest.mark.parametrize(
    ("built", "named"),
    [
        (("build/bin/llama-quantize", "llama-quantize"), "build/bin/llama-quantize"),
        (("build/bin/Release/llama-quantize.exe",), "build/bin/Release/llama-quantize.exe"),
        (("llama-quantize",), "llama-quantize"),
        ((), None),
    ],
)
def test_llama_cpp_is_the_named_folder_with_its_script_and_its_program(tmp_path, built, named):
    with pytest.raises(UserError, match=r"holds no convert_hf_to_gguf\.py"):
        find_llama_cpp(str(tmp_path), "")
    for name in ("convert_hf_to_gguf.py", *built):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    script = tmp_path.resolve() / "convert_hf_to_gguf.py"
    assert find_llama_cpp(str(tmp_path), "") == LlamaCpp(script, None)
    if named:
        assert find_llama_cpp(str(tmp_path), "q4_k_m").quantize == tmp_path.resolve() / named
    else:
        with pytest.raises(UserError, match="holds no llama-quantize") as refused:
            find_llama_cpp(str(tmp_path), "q4_k_m")
        assert "cmake" in refused.value.fix and refused.value.exit_code == 2
    with pytest.raises(UserError, match="none is named") as refused:
        find_llama_cpp("", "")
    assert refused.value.location == "--llama-cpp"


SCRIPT = """
import sys
words = sys.argv[1:]
open(words[words.index("--outfile") + 1], "w").write(" ".join(words))
"""


@pytest.mark.parametrize("quantize", ["", "q4_k_m"])
def test_a_model_is_converted_and_then_quantized_if_asked(tmp_path, quantize):
    (tmp_path / "convert.py").write_text(SCRIPT, encoding="utf-8")
    program = tmp_path / "quantize"
    program.write_text('#!/bin/sh\necho "$@" > "$2"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "out").mkdir()
    target, plain = tmp_path / "out/model.gguf", tmp_path / "out/f16.gguf"
    llama = LlamaCpp(tmp_path / "convert.py", program if quantize else None)
    convert(llama, tmp_path / "merged", target, "f16", quantize)
    outfile = plain if quantize else target
    expected = f"{tmp_path / 'merged'} --outfile {outfile} --outtype f16"
    if quantize:
        expected = f"{plain} {target} q4_k_m"
    assert target.read_text().strip() == expected
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.gguf"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('a'); print('no such model'); raise SystemExit(3)", "code 3: no such model"),
        ("print('a'); open(sys.argv[3], 'w'); print('half'); raise SystemExit(1)", "code 1: half"),
        ("print('a'); open(sys.argv[3], 'w'); os.kill(os.getpid(), 9)", "code -9: a"),
        ("print('a'); print('ready')", "wrote no model.gguf: ready"),
        ("", "wrote no model.gguf: it said nothing"),
    ],
)
def test_a_conversion_that_fails_says_its_last_words(tmp_path, script, message, capsys):
    begins = "import os, sys; sys.stdout.reconfigure(line_buffering=True); "
    (tmp_path / "convert.py").write_text(begins + script, encoding="utf-8")
    llama = LlamaCpp(tmp_path / "convert.py", None)
    with pytest.raises(UserError, match=message) as refused:
        convert(llama, tmp_path, tmp_path / "model.gguf", "f16", "")
    assert refused.value.exit_code == MODEL and refused.value.location == "convert.py"
    assert ("a\n" in capsys.readouterr().err) == bool(script)  # its last words, all of them


def test_how_far_a_conversion_is_is_said_every_thirty_seconds(tmp_path, monkeypatch, capsys):
    now = [100.0]

    def monotonic() -> float:
        now[0] += 20.0
        return now[0]

    monkeypatch.setattr(llama_cpp.time, "monotonic", monotonic)
    lines = "".join(f"print('{n}%|x'); " for n in range(5))
    script = f"{lines} import sys; open(sys.argv[3], 'w')"
    (tmp_path / "convert.py").write_text(script, encoding="utf-8")
    convert(LlamaCpp(tmp_path / "convert.py", None), tmp_path, tmp_path / "m.gguf", "f16", "")
    shown = [line for line in capsys.readouterr().err.splitlines() if "%|" in line]
    # the clock goes on by 20 s at each look
    assert shown == ["1%|x", "3%|x"]


def gguf_file(path: Path, **fields: Any) -> Path:
    """A file of llama.cpp's with these fields of the tokenizer, by the writer's names of them."""
    from gguf import GGUFWriter

    writer = GGUFWriter(str(path), "llama")
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_facts_of_a_gguf_file_are_those_it_holds_or_else_say_that_it_holds_none(tmp_path):
    whole = {"tokenizer_model": "gpt2", "chat_template": "{{ x }}", "eos_token_id": 7}
    assert read_facts(gguf_file(tmp_path / "a", **whole)) == GgufFacts("{{ x }}", 7, False)
    assert read_facts(gguf_file(tmp_path / "b", tokenizer_model="gpt2")) == GgufFacts("", -1, False)


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize(
    ("model", "pre", "begins"),
    [
        ("llama", "default", True),  # SentencePiece's
        *(("gpt2", pre, True) for pre in llama_cpp.BEGINS_WITH_BOS),
        ("gpt2", "qwen2", False),
        ("gpt2", "smollm", False),
    ],
)
def test_a_gguf_file_adds_a_bos_as_it_says_or_else_as_llama_cpp_does_for_its_kind(
    tmp_path, model, pre, begins, said
):
    fields = {"tokenizer_model": model, "tokenizer_pre": pre}
    declared = {} if said is None else {"add_bos_token": said}
    path = gguf_file(tmp_path / "model.gguf", **fields, **declared)
    assert read_facts(path).adds_bos == (begins if said is None else said)


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: mit\nbase: x\n---\n# Model\n", "mit"),
        ("---\nlicense: 'apache-2.0'\n---\n", "apache-2.0"),
        ("---\nbase: x\n---\nlicense: mit\n", ""),
        ("# Model\nlicense: mit\n", ""),
        ("words\n---\nlicense: mit\n---\n", ""),
        (None, ""),
    ],
)
def test_the_licence_is_the_one_in_the_head_of_the_card(tmp_path, card, expected):
    if card is not None:
        (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert licence(str(tmp_path)) == expected
    assert licence("smollm2-135m") == "apache-2.0"


def subject(**changes: Any) -> ExportedModel:
    protocols = {
        "react": SimpleNamespace(stops=("Observation:", "<end>")),
        "other": SimpleNamespace(stops=("Observation:", "Stop")),
    }
    values: dict[str, Any] = {
        "name": "sft",
        "source": Source("sft", "smollm2-135m", None, "d"),
        "template": SimpleNamespace(turn_end="<end>"),
        "mixture": SimpleNamespace(protocols=protocols),
        "lineage": [],
        "stages": [],
        "evaluations": [],
        "of_bfcl": False,
        "max_length": None,
    }
    return ExportedModel(**{**values, **changes})


def test_an_answer_ends_with_its_turn_and_at_each_stop_once():
    assert subject().stops == ["<end>", "Observation:", "Stop"]


def test_the_context_is_that_of_the_training_or_4096():
    assert (subject().context, subject(max_length=512).context) == (4096, 512)


def test_a_base_has_the_name_by_which_others_know_it():
    assert subject().origin == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert subject(source=Source("sft", "org/name", None, "d")).origin == "org/name"


def test_the_size_of_a_model_is_that_of_its_weights(tmp_path):
    for name, size in (("a.safetensors", 3), ("b.safetensors", 4), ("tokenizer.json", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert exported_model.weights_size(Source("m", str(tmp_path), None, "d")) == 7


@pytest.mark.parametrize("config", ["{}", '{"quantization_config": null}'])
def test_plain_weights_take_an_adapter_and_quantized_ones_do_not(tmp_path, config):
    source = Source("m", str(tmp_path), None, "d")
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    refuse_quantized(source)
    text = '{"quantization_config": {"bits": 4}}'
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="are quantized") as refused:
        refuse_quantized(source)
    assert refused.value.exit_code == MODEL


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, 2), (2, 2), (0, [2, 0]), ([0, 2], [2, 0]), ([0, 5], [2, 0, 5])],
)
def test_an_export_ends_its_answers_where_a_turn_ends_and_where_the_model_says_so(
    before: object, after: object, tmp_path: Path, templates: Any
) -> None:
    """In both files: some readers know only one of them."""
    template = templates["smollm2"]
    assert template.token_id(template.turn_end) == 2
    content = {"a": 1} if before is None else {"a": 1, "eos_token_id": before}
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    if before is not None:  # a model may have no generation_config.json
        (tmp_path / "generation_config.json").write_text(json.dumps(content), encoding="utf-8")
    targets._end_at(tmp_path, template)
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / name).read_bytes())["eos_token_id"] == after
    assert json.loads((tmp_path / "config.json").read_bytes())["a"] == 1


def test_an_export_names_every_stage_that_its_model_came_from_and_no_other(tmp_path):
    made = {
        "prep": ("prep", {}),
        "sft": ("sft", {"model": "smollm2-135m", "data": "prep"}),
        "prep-2": ("prep", {"model": "sft"}),
        "pairs": ("pairs", {"model": "sft", "data": "prep-2"}),
        "pairs-2": ("pairs", {"candidates": "pairs"}),
        "dpo": ("dpo", {"model": "sft", "data": "pairs-2"}),
        "other": ("sft", {"model": "smollm2-135m", "data": "prep"}),
        "later": ("grpo", {"model": "dpo", "data": "prep"}),
    }
    for name, (command, settings) in made.items():
        stage(tmp_path / name, {"command": command, "settings": settings, "inputs": {}}, {}, {})
    found = {name: names_of(tmp_path, name) for name in made}
    assert found["sft"] == ["prep", "sft"]
    assert sorted(found["pairs-2"]) == ["pairs", "pairs-2", "prep", "prep-2", "sft"]
    assert sorted(found["dpo"]) == ["dpo", "pairs", "pairs-2", "prep", "prep-2", "sft"]
    assert {*found["later"]} == {*found["dpo"], "later"}
    assert all(names[-1] == name for name, names in found.items())


def names_of(run: Path, name: str) -> list[str]:
    return [one.name for one in exported_model.made_of(read_run(run), name)]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (["own", "base", "other"], ["own", "base"]),
        (["base", "own"], ["base", "own"]),
        (["own"], ["own"]),
        (["base", "other"], []),  # without its own answers, those of the base say nothing of it
        (["other"], []),
        ([], []),
    ],
)
def test_an_export_shows_what_its_own_weights_answered_and_the_base_beside_them(
    tmp_path, answered, expected
):
    models: Any = {name: SimpleNamespace(inputs={"model": f"d-{name}"}) for name in answered}
    asked = Evaluation(tmp_path, models, ["one that was passed over"], {"models": answered})
    shown = exported_model._of(asked, "d-own", "d-base")
    assert [*shown.models] == expected and all(
        shown.models[name] is models[name] for name in expected
    )
    assert (shown.folder, shown.unread, shown.compared) == (tmp_path, [], {"models": answered})


FOLDING = [
    name
    for name, source in shipped()
    if name in ("trl/gemma", "trl/gemma3", "unsloth/mistral_template", "unsloth/gemma_template")
]


@pytest.mark.long
@pytest.mark.parametrize("name", FOLDING)
def test_a_template_that_folds_the_system_turn_has_no_ollama_template_and_the_error_says_so(
    name, smollm2
):
    """Be it that the model's own template folds it, or the lines that stand before it."""
    template = with_marks(name, dict(shipped())[name], smollm2.tokenizer)
    with pytest.raises(UserError, match="puts the system turn into the first user turn") as error:
        turns_of(template)
    assert error.value.exit_code == MODEL
    assert "--gguf" in error.value.fix and "llama-server --jinja" in error.value.fix
