"""What eval measures besides: pass^k and forgetting, as formulas, and with tiny models, killed and
run again.
"""

import json
import math
import re
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite import evaluate, prep
from agentlite.core.records import Step
from agentlite.core.row_files import read_rows
from agentlite.scoring.metrics.general_talk import forgetting, is_right
from agentlite.scoring.metrics.summarize import passes
from agentlite.stages.eval import probes
from agentlite.stages.eval.probes import QUESTIONS_ZH
from agentlite.stages.eval.subjects import slug


@given(st.integers(1, 8), st.data())
def test_pass_k_is_the_share_of_draws_that_are_all_right(drawn: int, data: st.DataObject) -> None:
    right, k = data.draw(st.integers(0, drawn)), data.draw(st.integers(1, drawn))
    marks = [n < right for n in range(drawn)]
    subsets = [*combinations(marks, k)]
    found = passes({Step("a", 1): marks}, 0)[f"pass^{k}"].mean
    assert found == pytest.approx(sum(map(all, subsets)) / len(subsets))


def test_forgetting_is_the_rise_of_the_log_perplexity_row_by_row() -> None:
    before = {str(n): 2.0 + n / 10 for n in range(20)}
    after = {name: loss + 0.03 for name, loss in before.items()}
    figures = forgetting(
        (before, {"a": True, "b": True}, {"甲": True}),
        (after, {"a": True, "b": False}, {"甲": True}),
        0,
    )
    assert figures["forgetting"].mean == pytest.approx(0.03) and figures["forgetting"].beyond_noise
    assert figures["perplexity"]["mean"] == pytest.approx(
        figures["perplexity_before"]["mean"] * 2.718281828**0.03
    )
    assert (figures["general_questions"].mean, figures["questions_forgotten"].mean) == (0.5, 0.5)
    zh = (figures["general_questions_zh"], figures["questions_forgotten_zh"])
    assert [figure.mean for figure in zh] == [1, 0]


def test_the_chinese_questions_are_chinese_and_their_answers_too() -> None:
    for row in read_rows(QUESTIONS_ZH):
        assert re.search("[\u4e00-\u9fff]{2}", row["question"])
        assert all(is_right(f"答案是{answer}。", row["answers"]) for answer in row["answers"])
        assert any(re.search("[\u4e00-\u9fffH]", answer) for answer in row["answers"])


# --- with models ---

GENERAL = [
    ("Name a colour.", "Blue."),
    ("What do bees make?", "They make honey."),
    ("Say hello.", "Hello to you!"),
]
SAID = {"role": "assistant"}
HOW: dict[str, Any] = {"max_new_tokens": 6, "max_length": 1024, "limit": 4, "batch_size": 1}
HOW["profile"] = "cpu"


@pytest.fixture(scope="module")
def workspace(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished prep, and beside it another model, whose weights are not those of the tiny one."""
    run = tmp_path_factory.mktemp("besides")
    options = {"protocol": "hermes", "limit": 8, "dev": 0.0, "test": 0.9, "max_length": 1024}
    prep("bfcl:irrelevance", run=str(run), model=str(tiny_model), **options)
    shutil.copytree(tiny_model, run / "other")
    import torch
    from safetensors.torch import load_file, save_file

    path = run / "other" / "model.safetensors"
    torch.manual_seed(1)
    weights = {name: one + 0.3 * torch.randn_like(one) for name, one in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
    lines = [
        json.dumps({"messages": [{"role": "user", "content": asked}, {**SAID, "content": said}]})
        for asked, said in GENERAL
    ]
    (run / "general.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run


def figures(workspace: Path, model: Path | str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = evaluate(
        run=str(workspace), model=[str(model)], **HOW, **options
    ).figures[str(model)]
    return found


class Killed(BaseException):
    """As from outside: nothing catches it."""


def test_a_drawing_that_was_killed_draws_only_what_is_missing(
    workspace: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = figures(workspace, tiny_model, num_samples=3, out="whole")["passes"]
    make, batches = probes.make_sampler, 0

    def dying(*given: Any) -> Any:
        draw = make(*given)

        def drawing(batch: Any) -> Any:
            nonlocal batches
            if batches == 2:
                raise Killed
            batches += 1
            return draw(batch)

        return drawing

    monkeypatch.setattr(probes, "make_sampler", dying)
    with pytest.raises(Killed):
        figures(workspace, tiny_model, num_samples=3, out="killed")
    inside = Path("prep", slug(str(tiny_model)), "samples.jsonl")
    file = workspace / "killed" / inside
    before = file.read_bytes()
    assert before.count(b"\n") == 2 * 3
    file.write_bytes(before + b'{"torn')
    monkeypatch.setattr(probes, "make_sampler", make)
    assert figures(workspace, tiny_model, num_samples=3, out="killed")["passes"] == whole
    assert file.read_bytes().startswith(before)
    drawn, other = (
        Counter((workspace / out / inside).read_bytes().splitlines()) for out in ("killed", "whole")
    )
    assert drawn == other
    assert set(drawn.values()) == {1}
    assert whole.keys() == {"pass^1", "pass^2", "pass^3"}


def test_forgetting_is_that_of_the_two_models_losses(
    workspace: Path, tiny_model: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    from agentlite.engine import load as loading

    few = {}
    for file, tokens in probes.ANSWER_TOKENS.items():
        lines = file.read_bytes().splitlines(keepends=True)
        (tmp_path / file.name).write_bytes(b"".join(lines[: 3 + len(few)]))
        few[tmp_path / file.name] = tokens
    monkeypatch.setattr(probes, "ANSWER_TOKENS", few)
    loads: list[str] = []
    adapt = loading._adapt  # others have bound `load`, which calls it, under its own name

    def counting(model: Any, source: Any, *how: Any) -> Any:
        loads.append(source.name)
        return adapt(model, source, *how)

    monkeypatch.setattr(loading, "_adapt", counting)
    loading.load_for_inference.cache_clear()
    models, general = [str(tiny_model), str(workspace / "other")], str(workspace / "general.jsonl")
    found = evaluate(
        run=str(workspace), model=models, general=general, num_samples=1, out="forgets", **HOW
    ).figures
    assert "forgetting" not in found[models[0]]
    told = found[models[1]]["forgetting"]
    before, after = ([own_loss(model, *row) for row in GENERAL] for model in models)
    risen = sum(two - one for one, two in zip(before, after, strict=True)) / len(GENERAL)
    assert abs(risen) > 0.01
    assert told["forgetting"]["mean"] == pytest.approx(risen, abs=1e-4)
    assert told["perplexity"]["mean"] == pytest.approx(math.exp(sum(after) / len(after)), rel=1e-4)
    counts = [told[name]["count"] for name in ("general_questions", "general_questions_zh")]
    assert counts == [3, 4]
    # one is in memory for its answers and what is drawn, then both once more for their losses
    asked, lost = 1, 1
    assert Counter(loads) == {models[0]: 2 * asked + lost, models[1]: asked + lost}


def own_loss(model: str, asked: str, said: str) -> float:
    """Nats a token of the answer and its end, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    start = f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
    system = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        "Face<|im_end|>\n"
    )
    prompt, answer = (
        tokenizer(text, add_special_tokens=False).input_ids
        for text in (system + start, f"{said}<|im_end|>")
    )
    ids = torch.tensor([prompt + answer])
    labels = torch.tensor([[-100] * len(prompt) + answer])
    with torch.no_grad():
        return float(AutoModelForCausalLM.from_pretrained(model)(ids, labels=labels).loss)
