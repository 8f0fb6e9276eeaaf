"""An attempt -> one plain line: the first thing that is wrong, or `right`."""

from collections.abc import Mapping

from agentlite.scoring.rewards.attempt import Attempt
from agentlite.scoring.rewards.call_matching import CallUse

LONGEST = 200  # characters: the names in it are the model's


def feedback(attempt: Attempt) -> str:
    line = _of_step(attempt) if attempt.trace is None else _of_trace(attempt)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    return line[:LONGEST]


def _of_step(attempt: Attempt) -> str:
    expected, made, tools = attempt.gold.calls, attempt.made, attempt.uses
    if unreadable := _of_text(attempt):
        return unreadable
    if not attempt.gold.known:
        return "not compared: the prompt has no gold"
    if not expected:
        if made:
            return f"calls {', '.join(tools)} where no call is expected"
        if not attempt.answers:
            return "says nothing"
        return "right" if attempt.is_related else "has no word of the dialog"
    if not made:
        return f"no call where {', '.join(tools)} is expected"
    if miscounted := {
        name: use for name, use in tools.items() if len(use.expected) != len(use.made)
    }:
        return _of_tools(miscounted)
    if repeated := [name for name, use in tools.items() if use.repeated]:
        return f"repeats a call of {', '.join(repeated)}"
    fits = [fit for _, fit in attempt.matches if fit]
    if wrong := next((fit.problem for fit in fits if fit.problem), ""):
        return wrong
    if attempt.excess_words:
        return f"{attempt.excess_words} words beside the calls"
    return "right once its values are cast" if any(fit.casts for fit in fits) else "right"


def _of_text(attempt: Attempt) -> str:
    return attempt.parsed.problem if attempt.finished else "not finished"


def _of_trace(attempt: Attempt) -> str:
    expected, steps, optimal = len(attempt.gold.calls), len(attempt.made), attempt.optimal_steps
    if steps and not expected:
        return f"calls {', '.join(attempt.uses)} where no call is expected"
    if attempt.carried_out < expected:
        return f"{attempt.carried_out} of {expected} expected calls carried out"
    if attempt.failed_steps:
        return f"carried out, but {attempt.failed_steps} of {steps} steps failed"
    if steps > optimal:
        return f"carried out in {steps} steps, not {optimal}"
    return _of_text(attempt) or "right"


def _of_tools(miscounted: Mapping[str, CallUse]) -> str:
    extra = [name for name, use in miscounted.items() if len(use.made) > len(use.expected)]
    lacking = [name for name in miscounted if name not in extra]
    if extra and lacking:
        return f"calls {', '.join(extra)}, not {', '.join(lacking)}"
    name, use = next(iter(miscounted.items()))
    if not use.expected:
        return f"calls {', '.join(extra)}, not expected"
    made = len(use.made)
    calls = f"{made or 'no'} {'calls' if made > 1 else 'call'}"
    return f"{calls} of {name} where {len(use.expected)} expected"
