"""Rows, settings and tasks that train the tiny model, for the tests of the trainers."""

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentlite.config.settings import DistillSettings, DpoSettings, GrpoSettings, SftSettings
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.engine.decoding import Decoding
from agentlite.engine.distill import DistillPrompt, DistillTask
from agentlite.engine.dpo import Preference
from agentlite.engine.grpo import Draw, GrpoTask, LearnedRow, Reward, answer_row
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.rendering import Encoded, choose, encode_row, render
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source

CITIES = ("Oslo", "Bergen", "Paris", "Rome", "Lyon", "Bonn", "Graz")
TOOL = Tool(
    "get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
FIVE_CITIES = ("Oslo", "Bergen", "Paris", "Rome", "Lyon")
WEIGHTS = {"even": 1.0, "long": 0.5, "timeout": -0.25}


def records(cities: Sequence[str] = CITIES) -> list[Record]:
    """A question and a call each, of different lengths."""
    return [
        Record(
            messages=(
                Message("user", "Weather in " + " and ".join([city] * n)),
                Message("assistant", calls=(Call("get_weather", {"city": city}),)),
            ),
            tools=(TOOL,),
        )
        for n, city in enumerate(cities, 1)
    ]


@cache
def rows(model: str = "smollm2-135m") -> list[Encoded]:
    """Seven rows of different lengths, so that seven is no multiple of any batch."""
    template = load_template(model)
    protocol = choose("hermes", template).protocols["hermes"]
    rendered = (row for record in records() for row in render(record, protocol, template))
    return [encode_row(row, template) for row in rendered]


def short_rows(count: int = 4) -> list[Encoded]:
    """Random ids, fewer than a dozen a row: Triton's interpreter takes milliseconds a token."""
    generator = random.Random(0)
    rows = [
        [generator.randrange(100, 40000) for _ in range(generator.randrange(6, 12))]
        for _ in range(count)
    ]
    return [Encoded(ids, [-100] * 3 + ids[3:]) for ids in rows]


def sft(**changes: object) -> SftSettings:
    return SftSettings(
        **{
            "model": "tiny",
            "batch_size": 2,
            "gradient_accumulation": 2,
            "max_steps": 6,
            "save_steps": 2,
            "lora_dropout": 0.1,
            "learning_rate": 1e-2,
            "warmup_ratio": 0.3,
            **changes,
        }
    )


def losses(folder: Path) -> list[tuple[int, float]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["step"], row["loss"]) for row in map(json.loads, lines)]


def source(folder: Path, adapter: Path | None = None) -> Source:
    return Source("tiny", str(folder), adapter, "")


def checkpointing(model: Any) -> list[str]:
    """How modules keep activations for the backward pass: each of the ways there are."""
    found = (getattr(module, "gradient_checkpointing", None) for module in model.modules())
    return sorted({str(one) for one in found if one is not None})


@cache
def preferences() -> list[Preference]:
    """Five pairs of different lengths, so that five is no multiple of any batch."""
    template = load_template("smollm2-135m")
    encode, end = template.encode, template.token_id(template.turn_end)
    return [
        Preference(
            encode("Weather in " + " and ".join([city] * n)),
            [*encode("sunny, mild"), end],
            [*encode("who knows " * n), end],
        )
        for n, city in enumerate(FIVE_CITIES, 1)
    ]


def dpo(**changes: object) -> DpoSettings:
    return DpoSettings(
        **{
            "model": "tiny",
            "batch_size": 2,
            "gradient_accumulation": 1,
            "max_steps": 6,
            "save_steps": 2,
            "learning_rate": 1e-2,
            "warmup_ratio": 0.3,
            **changes,
        }
    )


@cache
def prompts() -> list[list[int]]:
    template = load_template("smollm2-135m")
    return [
        template.encode("Weather in " + " and ".join([city] * n))
        for n, city in enumerate(FIVE_CITIES, 1)
    ]


def grpo(**changes: object) -> GrpoSettings:
    return GrpoSettings(
        **{
            "model": "tiny",
            "batch_size": 4,
            "gradient_accumulation": 2,
            "max_steps": 6,
            "save_steps": 2,
            "learning_rate": 1e-2,
            "warmup_ratio": 0.3,
            "max_new_tokens": 6,
            **changes,
        }
    )


def verdict(answer: Sample) -> Reward:
    """A random model can learn this: to say tokens of even number."""
    even = sum(token % 2 == 0 for token in answer.ids) / len(answer.ids)
    return {
        "even": even,
        "long": min(1.0, len(answer.text) / 100),
        "timeout": float(answer.ended == "cut"),
    }


def verdicts(answers: Sequence[Sample]) -> list[Reward]:
    return [verdict(answer) for answer in answers]


def task(
    settings: GrpoSettings | None = None,
    judge: Callable[[Sequence[Sample]], list[Reward]] = verdicts,
    asked: Sequence[Sequence[int]] = (),
    stops: Sequence[tuple[str, ...]] = (),
) -> GrpoTask:
    """`asked`: in place of `prompts`; `stops`: of each of them."""
    chosen, asked = settings or grpo(), asked or prompts()
    decoding = Decoding(
        chosen.max_new_tokens, temperature=chosen.temperature, top_p=chosen.top_p, turn_end=2
    )

    def sample(draw: Draw, indices: Sequence[int], step: int) -> list[LearnedRow]:
        requests = [
            SampleRequest(
                asked[index],
                tuple(f"{chosen.seed} {step} {place} {n}" for n in range(chosen.group_size)),
                stops[index] if stops else (),
            )
            for place, index in enumerate(indices)
        ]
        answers = sorted(draw(requests, decoding))
        return [
            answer_row(asked[indices[answer.prompt]], answer, reward)
            for answer, reward in zip(answers, judge(answers), strict=True)
        ]

    return GrpoTask(len(asked), sample, WEIGHTS, [])


def distill_task() -> DistillTask:
    """Five prompts with recorded answers of different lengths."""
    rows = [DistillPrompt(one.prompt, (), one.rejected) for one in preferences()]
    return DistillTask(rows, Decoding(6, temperature=1.0, turn_end=2), 49152)


def distill(**changes: object) -> DistillSettings:
    return DistillSettings(
        **{
            "model": "tiny",
            "batch_size": 2,
            "gradient_accumulation": 2,
            "max_steps": 6,
            "save_steps": 2,
            "learning_rate": 1e-2,
            "warmup_ratio": 0.3,
            "max_new_tokens": 6,
            **changes,
        }
    )
