"""The slow facts about a machine, found at the same time, with a limit of two seconds."""

import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config import gpu_profiles
from agentlite.config.gpu_driver import driver

SECONDS = 2.0
HUB = "https://huggingface.co"


class ProbedFacts(NamedTuple):
    """`driver`: the version, "" where nvidia-smi is there and fails, None without one. `unreached`:
    why the hub did not answer, "" if it did, None where it was not asked. `late`: whether
    nvidia-smi did not answer in time.
    """

    run: Path
    card: gpu_profiles.Gpu | None
    driver: str | None
    unreached: str | None
    late: bool = False


def ask(run: Path) -> ProbedFacts:
    hub = {} if offline() else {"hub": lambda: unreached(endpoint())}
    facts = answers({"card": gpu_profiles.card, "driver": driver, **hub}, SECONDS)
    return ProbedFacts(
        run,
        facts.get("card"),
        facts.get("driver"),
        facts.get("hub", f"no answer in {SECONDS:.0f} s") if hub else None,
        late=not {"card", "driver"} <= facts.keys(),
    )


def answers(tasks: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """What the tasks return. One that takes longer is left behind: looking up a name, for one,
    knows no time limit.
    """
    facts: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=lambda name=name, task=task: facts.update({name: task()}), daemon=True
        )
        for name, task in tasks.items()
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(facts)


def offline() -> bool:
    """As huggingface-hub reads it."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """Where models are fetched from."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB


def unreached(url: str) -> str:
    """Why a server does not answer; "" if it does, whatever it says."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=1):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return " ".join(str(getattr(error, "reason", error)).split())
