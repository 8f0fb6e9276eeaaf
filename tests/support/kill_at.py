"""A moment of training, `log 3` or `save 4` -> a process that is killed there without warning; not
a test itself.

As a script: `kill_at.py 'log 3' sft ...` is the command line, killed so. Under a launcher the
others die with it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any


def die_at(moment: str) -> None:
    what, step = moment.split()
    {"log": _die_at_log, "save": _die_at_save}[what](int(step))


def _die() -> None:
    if "LOCAL_RANK" in os.environ:
        launcher = os.getppid()
        siblings = (
            Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="ascii").split()
        )
        for process in {launcher, *map(int, siblings)} - {os.getpid()}:
            os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_log(step: int) -> None:
    from agentlite.core import console

    class Dying:
        def __enter__(self) -> Any:
            return lambda done, note="": _die() if done >= step else None

        def __exit__(self, *_: object) -> None: ...

    console.progress = lambda title, total: Dying()  # type: ignore[assignment]


def _die_at_save(step: int) -> None:
    from agentlite.engine import checkpoints

    write = checkpoints.write_json

    def writing(path: Path, value: Any) -> None:
        if path.name == checkpoints.MANIFEST and path.parent.name == f"checkpoint-{step}":
            _die()
        write(path, value)

    checkpoints.write_json = writing


if __name__ == "__main__":
    from agentlite.cli.main import main

    die_at(sys.argv.pop(1))
    main()
