"""`--print-job`: a command, and what its job needs, in the words of bash."""

import hashlib
import platform
import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple

SchedulerName = Literal["sky", "slurm", "dstack", "hf"]
STORE = "/agentlite-store"  # where a job has the storage that survives it
ODD = re.compile(r"[$'\\]|[^ -~]")  # characters that a quoted word does not hold as they are
SAFE = re.compile(r"[^a-z0-9]+")


class SchedulerJob(NamedTuple):
    """What a scheduler has to be given to run one command.

    `words`: behind `agentlite`. `run`: the workspace; `run_from_env`: AGENTLITE_RUN names it.
    `gib`: memory of the smallest card that fits, 0 for none, with the reason `why`. `keys`:
    variables of the environment that the command reads. `notes`: further lines for the user."""

    words: tuple[str, ...]
    run: Path
    extras: str
    gib: int
    why: str
    run_from_env: bool = False
    cpus: int = 4
    keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The command without its options: `make templates`."""
        named = [word for word in self.words[:2] if word.isalpha()]
        return " ".join(named if self.words[0] == "make" else named[:1])

    @property
    def name(self) -> str:
        """Letters, digits and dashes: `agentlite-sft`."""
        return f"agentlite-{SAFE.sub('-', self.title)}"

    @property
    def command(self) -> str:
        """A line of bash that calls agentlite with exactly these words."""
        return " ".join(("agentlite", *map(quoted, self.words)))

    @property
    def exports(self) -> str:
        return f"export AGENTLITE_RUN={quoted(str(self.run))}\n" if self.run_from_env else ""


def store_name(folder: Path) -> str:
    """The name of a bucket or volume for all jobs of one folder. Names of buckets are shared with
    everybody, so a digest of the machine and the folder is a part of it."""
    where = f"{platform.node()}\0{folder}".encode("utf-8", "surrogateescape")
    named = SAFE.sub("-", folder.name.lower()).strip("-")[:30].strip("-")
    return f"agentlite-{named or 'jobs'}-{hashlib.sha256(where).hexdigest()[:8]}"


def quoted(word: str) -> str:
    """A word as bash reads it back, in one line of printable characters. No `$` in it stands next
    to what a scheduler would take for a variable of its own."""
    if all(char.isprintable() and char not in "$'\\" for char in word):
        return shlex.quote(word)
    return "$'" + ODD.sub(_escaped, word) + "'"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable() and char not in "$'\\":
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
