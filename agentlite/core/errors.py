"""UserError: a problem, its location, a fix and an exit code. RowError: a row that is rejected."""

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

USAGE, OTHER_PLAN, REJECTS, MODEL, DIVERGED, OUT_OF_MEMORY, NETWORK, GATE = 2, 3, 4, 5, 6, 7, 8, 9
DISK, LOCKED = 74, 75
# exit code -> its name in an error that is printed as JSON
NAMES = {
    USAGE: "usage",
    OTHER_PLAN: "other_settings",
    REJECTS: "rejects",
    MODEL: "model",
    DIVERGED: "diverged",
    OUT_OF_MEMORY: "out_of_memory",
    NETWORK: "network",
    GATE: "gate",
    DISK: "disk",
    LOCKED: "locked",
}


class UserError(Exception):
    """An error that a user can fix; it is printed in one to three lines without a traceback."""

    def __init__(self, problem: str, fix: str = "", *, location: str = "", exit_code: int = USAGE):
        super().__init__(problem, fix)
        self.problem, self.fix, self.location, self.exit_code = problem, fix, location, exit_code

    def __str__(self) -> str:
        lines = f"{self.location}: {self.problem}" if self.location else self.problem, self.fix
        return "\n".join(filter(None, lines))


def exceeds_share(failed: int, count: int, share: float, allowed: int = 0) -> bool:
    """Whether more than a share of `count` failed. `allowed`: so many never are too many."""
    # not `failed > share * count`: 0.29 * 100 is less than 29, and 29 / 100 is 0.29
    return failed > allowed and failed / count > share


SETUP = Path(__file__).parents[2] / "scripts" / "setup.sh"  # a checkout has it, a wheel has not


def require(
    feature: str, modules: Iterable[str], command: str, location: str = "", in_set: bool = True
) -> None:
    """Imports none of these optional packages, so it may be asked before anything slow. `in_set`:
    whether scripts/setup.sh installs them. Raises UserError 5.
    """
    if missing := [module for module in modules if importlib.util.find_spec(module) is None]:
        raise UserError(
            f"{feature} needs what is not installed: {', '.join(missing).replace('_', '-')}.",
            install_fix(command) if in_set else f"Run `{adapt_pip_command(command)}`.",
            location=location,
            exit_code=MODEL,
        )


def install_fix(command: str) -> str:
    """The fix for a missing package, as this installation has it."""
    setup = "`bash scripts/setup.sh --all`, or " if SETUP.exists() else ""
    return f"Run {setup}`{adapt_pip_command(command)}`."


def adapt_pip_command(command: str) -> str:
    """A `pip install` into the environment that runs this: uv makes it without pip, and the shell's
    pip would install into another one.
    """
    by_uv = command.replace("pip install", f"uv pip install --python {sys.executable}", 1)
    return command if importlib.util.find_spec("pip") else by_uv


# what others call it -> what it is called here, where that is one of the known names
OTHER_NAMES = {
    "learning_rate": "lr rate",
    "num_epochs": "epochs num-train-epochs",
    "max_steps": "steps iterations",
    "batch_size": "bs batch per-device-train-batch-size train-batch-size micro-batch-size",
    "gradient_accumulation": "gradient-accumulation-steps grad-accum accumulation-steps",
    "max_length": "cutoff-len max-seq-length max-seq-len model-max-length context-length",
    "max_new_tokens": "max-completion-length max-generation-length",
    "lora_r": "rank lora-rank",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "lora_target_modules": "target-modules lora-target lora-targets",
    "lr_scheduler": "scheduler lr-scheduler-type",
    "warmup_ratio": "warmup warmup-steps",
    "load_in_4bit": "4bit qlora quantization-bit",
    "group_size": "num-generations",
    "requests": "concurrency endpoint-seconds endpoint-tries",
    "model": "model-name-or-path model-id base-model base pretrained-model-name-or-path",
    "data": "dataset dataset-name train-file data-path",
    "run": "workspace project run-dir",
    "out": "output output-dir",
    "dev": "val validation val-size eval-size",
    "test": "test-size",
    "beta": "kl-coef kl pref-beta",
    "user": "human",
    "assistant": "gpt bot model ai",
    "tool": "observation function-response tool-response",
    "messages": "conversation dialog chat",
    "smollm2-135m": "smollm smollm2 small",
}


def suggest(
    name: str,
    known: Iterable[str],
    *,
    prefix: str = "",
    fallback: str | None = None,
    other_names: Mapping[str, str] = OTHER_NAMES,
) -> str:
    """The fix for an unknown name: the closest one, behind `prefix`; or `fallback`; or all."""
    known = list(known)
    if match := closest(name, known, other_names):
        return f"Did you mean '{prefix}{match}'?"
    return f"Known: {', '.join(known)}." if fallback is None else fallback


def closest(name: str, known: Iterable[str], other_names: Mapping[str, str] = OTHER_NAMES) -> str:
    """The name that is meant: one that others use for it, the one that is spelt most like it, or
    the only one that begins so; "" if there is none. `other_names`: a known name -> what else it
    is called, apart by blanks.
    """
    import difflib

    typed, by_spelling = _normalize(name), {_normalize(ours): ours for ours in known}
    by_synonym = {
        _normalize(synonym): by_spelling[_normalize(ours)]
        for ours, synonyms in other_names.items()
        if _normalize(ours) in by_spelling
        for synonym in synonyms.split()
    }
    for names in (by_spelling, by_synonym):
        if typed in names:
            return names[typed]
    longer = [ours for ours in by_spelling if len(typed) > 2 and ours.startswith(typed)]
    matches = difflib.get_close_matches(typed, by_spelling, 1) or longer
    return by_spelling[matches[0]] if len(matches) == 1 else ""


def _normalize(name: str) -> str:
    """Options, settings and names are compared without dashes before and capitals."""
    return name.lstrip("-").replace("-", "_").lower()


class RowError(Exception):
    """A row that does not fit its format. `prep` puts it in rejects.jsonl under `code` and goes
    on.

    `hint`: how to fix this row, where that is more than the hint of the code. `at`: where the row
    is wrong: a piece of its text, or the position of a character in it.
    """

    def __init__(self, code: str, reason: str, hint: str = "", at: str | int = ""):
        super().__init__(code, reason, hint, at)
        self.code, self.reason, self.hint, self.at = code, reason, hint, at
