"""--report-to: trackers that follow a training run, in addition to metrics.jsonl."""

import os
from collections.abc import Sequence
from pathlib import Path

from agentlite.config.settings import Tracker
from agentlite.core.optional_deps import need

PROJECT = "agentlite"


def check_trackers(report_to: Sequence[Tracker]) -> None:
    """Loads nothing. Raises UserError 5 for a tracker whose package is missing."""
    for name in report_to:
        # not in the tested set: TRL imports trackio in every run, where it is installed
        need("this tracker", [name], f"pip install {name}", f"--report-to {name}", in_set=False)


def tracker_arguments(
    report_to: Sequence[Tracker], folder: Path, *, others: bool = False
) -> dict[str, object]:
    """Arguments of transformers' trainer, for the stage in `folder`. Without a tracker nothing is
    reported; TensorBoard's files are in the stage's folder, since checkpoints may be freed.
    `others`: `trl` names trackers, which then take the place of these.
    """
    if "wandb" not in report_to and not others:
        os.environ.setdefault("WANDB_MODE", "disabled")
    if "tensorboard" in report_to:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
    return {
        "report_to": [*report_to] or "none",
        "project": PROJECT,
        "run_name": f"{folder.resolve().parent.name}-{folder.name}",
    }
