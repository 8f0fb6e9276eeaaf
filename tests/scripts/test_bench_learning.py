"""scripts/bench/learning.py: its commands can be typed, dev chooses, and only what was chosen is
asked the test questions.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import learning
import pytest
from support.samples import ROOT
from test_docs import misread

# In place of agentlite: notes its words, and answers the dev questions as the model's name says.
PROGRAM = """
import json, sys, pathlib
words = sys.argv[1:]
folder = pathlib.Path(words[words.index("--run") + 1])
with (folder / "typed").open("a") as typed:
    print(json.dumps(words), file=typed)
out = words[words.index("--out") + 1]
if out == "sft-full-0":
    sys.exit(1)
if out.startswith("eval-dev-"):
    model = out.removeprefix("eval-dev-")
    exact, balanced = {"sft-r64-0": (0.5, 0.9), "sft-fast-0": (0.9, 0.5)}.get(model, (0.4, 0.9))
    figures = {"exact_call": {"mean": exact}, "tool_selection_accuracy": {"mean": 0.5}}
    told = {"metrics": figures, "timing": {"balanced_accuracy": {"mean": balanced}}}
    path = folder / out / "learn" / model / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(told))
"""


def run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    folder.mkdir()
    (folder / "agentlite.py").write_text(PROGRAM)
    program = shlex.join([sys.executable, str(folder / "agentlite.py")])
    done = subprocess.run(
        [sys.executable, learning.__file__, "--run", str(folder), "--jobs", "2", *options],
        env={"PATH": "/usr/bin:/bin", "AGENTLITE": program},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done, [json.loads(line) for line in (folder / "typed").read_text().splitlines()]


def models(typed: list[list[str]], split: str) -> set[str]:
    return {
        words[words.index("--model") + 1]
        for words in typed
        if words[0] == "eval" and words[words.index("--split") + 1] == split
    }


def after(best: str) -> set[str]:
    names = (*learning.AFTER, f"sft-{best}", "more")
    return {f"{name}-{seed}" for name in names for seed in (0, 1, 2)}


@pytest.mark.long
@pytest.mark.parametrize("chosen", learning.SFT)
def test_every_way_of_sft_is_gone_on_from_and_what_a_job_reads_is_made_before_it(
    chosen: str,
) -> None:
    jobs = {job.name: job for job in learning.Search(Path("w"), chosen).start()}
    for job in jobs.values():
        words = shlex.split(job.command)
        assert misread(words) == "" and {*job.after} <= jobs.keys()
        for flag in {"--data", "--model", "--teacher"} & {*words}:
            assert words[words.index(flag) + 1] in {*job.after, learning.BASE}, job
    # what nothing waits for begins behind the sampling
    sampled = tuple(f"pairs-{seed}" for seed in learning.SEEDS)
    assert jobs["more-1"].after == (f"{learning.SFT[chosen][0]}-all", *sampled)


@pytest.mark.long
def test_dev_chooses_among_those_that_can_and_the_test_is_for_what_was_chosen(
    tmp_path: Path,
) -> None:
    done, typed = run(tmp_path / "run")
    assert done.returncode == 1 and "failed: sft-full-0, sft-full-0-dev" in done.stdout
    assert [words for words in typed if misread(words)] == []
    assert models(typed, "dev") == {f"sft-{name}-0" for name in learning.SFT} - {"sft-full-0"}
    assert models(typed, "test") == after("r64") | {learning.BASE}
    stages = [words[words.index("--out") + 1] for words in typed]
    assert len(stages) == len({*stages})


@pytest.mark.long
def test_a_named_recipe_needs_no_search(tmp_path: Path) -> None:
    done, typed = run(tmp_path / "run", "--sft", "recipe", "--sampler", "hf")
    assert done.returncode == 0 and "failed: none" in done.stdout
    assert models(typed, "dev") == set()
    assert models(typed, "test") == after("recipe") | {learning.BASE}
    assert all(
        (words[-2:] == ["--engine", "hf"]) == (words[0] in ("eval", "pairs")) for words in typed
    )
