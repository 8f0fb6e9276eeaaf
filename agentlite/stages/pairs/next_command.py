"""A finished folder of pairs -> the command that learns from them; without a pair, what helps."""

import shlex

from agentlite.core import console
from agentlite.workspace.run_folder import Result, RunTarget, StageFolder

SAMPLE_MORE = "sample more answers (-n), raise --temperature, lower --margin, or add --gold"
RANKED = "take other --weights, lower --margin, add --gold, or sample more answers first"
ROLLOUTS = "take other --weights, lower --margin, or run `agentlite rollout` with a larger -n"


def with_next(stage: StageFolder, target: RunTarget, helps: str) -> Result:
    """The stage's result, whose next command is dpo if there is a pair to learn from."""
    figures = stage.done.figures
    if not figures["pairs"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in figures["no_pair"].items())
        cause = f" ({reasons})" if reasons else ""
        console.notice(f"pairs: no pair was made{cause}. To get some, {helps}")
        return stage.result("")
    if target.out == "pairs":
        return stage.result(target.next("agentlite dpo"))
    names = shlex.join(["--data", target.out, "--out", f"dpo-{target.out}"])
    return stage.result(target.next(f"agentlite dpo {names}"))
