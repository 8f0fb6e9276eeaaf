"""One finding of `agentlite doctor`, and the facts about a machine that its checks share."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from agentlite.config import gpu_profiles
from agentlite.config.gpu_driver import driver

State = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True):
    """`fix`: what to do; only where the state is not ok."""

    name: str
    state: State
    detail: str
    fix: str = ""


class Facts(NamedTuple):
    """`driver`: the version, "" where nvidia-smi is there and fails, None without one."""

    run: Path
    card: gpu_profiles.Gpu | None
    driver: str | None


def facts_of(run: Path) -> Facts:
    return Facts(run, gpu_profiles.card(), driver())


def why_unreached(url: str) -> str:
    """Why a server does not answer in a second; "" if it does, whatever it says."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=1):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return " ".join(str(getattr(error, "reason", error)).split())
