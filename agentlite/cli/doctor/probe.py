"""What may be slow to say -> facts: asked all at once, and after two seconds no longer waited
for.
"""

import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config import hardware

SECONDS = 2.0
HUB, MIRROR = "https://huggingface.co", "https://hf-mirror.com"


class ProbedFacts(NamedTuple):
    """`driver`: the version, "" where nvidia-smi is there and fails, None without one. `unreached`:
    by address, why a server did not answer, "" if it did; empty where none was asked. `late`:
    whether nvidia-smi did not answer in time.
    """

    run: Path
    card: hardware.Gpu | None
    driver: str | None
    unreached: Mapping[str, str]
    late: bool = False


def ask(run: Path) -> ProbedFacts:
    servers = (
        {} if offline() else {url: partial(unreached, url) for url in (HUB, endpoint(), MIRROR)}
    )
    told = answers({"card": hardware.card, "driver": driver, **servers}, SECONDS)
    late = not {"card", "driver"} <= told.keys()
    return ProbedFacts(
        run,
        told.get("card"),
        told.get("driver"),
        {url: told.get(url, f"no answer in {SECONDS:.0f} s") for url in servers},
        late,
    )


def answers(tasks: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """What the tasks return. One that takes longer is left behind: looking up a name, for one,
    knows no time limit.
    """
    found: dict[str, Any] = {}
    threads = [
        threading.Thread(
            target=lambda name=name, task=task: found.update({name: task()}), daemon=True
        )
        for name, task in tasks.items()
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(found)


def driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except FileNotFoundError:
        return None
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.match(r"[\d.]+", told)
    return found[0] if found else ""


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
