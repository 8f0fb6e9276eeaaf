"""`meet_often.py FILE`: a process that meets the others again and again; not a test itself.

The first process makes FILE when they have met ten times. A lost one is missed after a second and a
half.
"""

import sys
from pathlib import Path

from agentlite.cli.error_output import print_error
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import coordinate, heartbeat

heartbeat.SECONDS, heartbeat.LOST = 0.1, 15


def meet() -> None:
    import torch

    coordinate.go()
    torch.distributed.init_process_group("gloo")
    for time in range(10**9):
        coordinate.barrier()
        if time == 10 and distributed.first():
            Path(sys.argv[1]).touch()


if __name__ == "__main__":
    try:
        coordinate.in_step(meet, print_error)  # type: ignore[arg-type]  # it never returns
    except UserError as error:
        print_error(error)
        sys.exit(error.exit_code)
