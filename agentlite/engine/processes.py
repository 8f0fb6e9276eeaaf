"""Several processes of one run: how DeepSpeed divides the work, and how they begin and end.

The first process decides when the others begin; all end as it does. Their messages go through the
key-value store that the launcher has opened for them, so that it works before they are a group, and
after one of them has failed.
"""

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn

from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import find_config_file
from agentlite.core import distributed
from agentlite.core.errors import UserError
from agentlite.engine import on_gpu, torch
from agentlite.workspace.lookup import Result

TORCHRUN_STAGES = tuple(name for name, stage in STAGES.items() if stage.torchrun)
END_SECONDS = 20.0  # for the others to see how the first one ended
CONNECT_TIMEOUT = timedelta(minutes=10)  # for the first process to open the store
START_KEY, END_KEY, SEEN_KEY = "word", "end", "seen"


def read_deepspeed(name: str) -> dict[str, Any]:
    """The JSON of a configuration, the user's or one that is shipped. Raises UserError 2."""
    path = find_config_file(name)
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"cannot be read: {error}.",
            "Shipped: deepspeed/zero2.json, zero3.json, zero2_offload.json, zero3_offload.json.",
            location=str(path),
        ) from error


def join_deepspeed(name: str) -> dict[str, object]:
    """The configuration as transformers takes it. Joins the processes on a CPU."""
    # warnings of DeepSpeed's own calls
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    if not on_gpu():
        import deepspeed

        # it would be compiled otherwise, and gloo does without it
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # accelerate does this with CUDA only
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    return read_deepspeed(name)


def run_together(run: Callable[[], Result]) -> Result:
    """`run` in the first process; in each other one when the first has work for all, and not at all
    where it ends before. The others leave with its exit code, and say what went wrong only if it
    does not. If a process is lost, the launcher ends the others of its machine; those of another
    machine end when their next collective operation times out.
    """
    # torch would print a stack trace for a connection that is closed
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return (_lead if distributed.is_first() else _follow)(run, _store())


def start_others() -> None:
    """The others may begin: what the first process checks alone is done."""
    if distributed.world_size() > 1 and distributed.is_first():
        _store().set(START_KEY, "go")


def barrier() -> None:
    if distributed.world_size() > 1:
        torch.distributed.barrier()


def any_of(flag: bool) -> bool:
    """Whether it is so in any of the processes: a signal does not come to all of them in the same
    step.
    """
    if distributed.world_size() == 1:
        return flag
    from accelerate import PartialState

    flags = torch.tensor([float(flag)], device=PartialState().device)
    torch.distributed.all_reduce(flags, op=torch.distributed.ReduceOp.MAX)
    return bool(flags.item())


def _lead(run: Callable[[], Result], store: Any) -> Result:
    code = 0
    try:
        return run()
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        raise
    finally:
        # The order: how the first process ended is there before the others may look for it; those
        # that have not begun are sent home; and this process, in which the store may live, leaves
        # last. The launcher, and its store, may be gone.
        with contextlib.suppress(RuntimeError):
            store.set(END_KEY, str(code))
            store.compare_set(START_KEY, "", str(code))  # unless it says "go" already
            deadline = time.monotonic() + END_SECONDS
            other_count = distributed.world_size() - 1
            while store.add(SEEN_KEY, 0) < other_count and time.monotonic() < deadline:
                time.sleep(0.05)


def _follow(run: Callable[[], Result], store: Any) -> Any:
    if store.get(START_KEY) == b"go":
        try:
            run()
        except SystemExit:
            pass
        except BaseException:  # is said where the first process does not fail as well
            store.set_timeout(timedelta(seconds=END_SECONDS))
            with contextlib.suppress(RuntimeError):
                if store.get(END_KEY) != b"0":
                    _leave(store)
            raise
    _leave(store)


def _leave(store: Any) -> NoReturn:
    code = int(store.get(END_KEY))
    store.add(SEEN_KEY, 1)
    sys.exit(code)


@cache
def _store() -> Any:
    """A connection to the store, or the store itself."""
    launcher_has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        distributed.world_size(),
        distributed.is_first() and not launcher_has_store,
        timeout=CONNECT_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,
    )
    run_store = torch.distributed.PrefixStore(
        f"agentlite-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store
    )
    run_store.set_timeout(timedelta(days=30))  # as long as the first process works alone
    return run_store
