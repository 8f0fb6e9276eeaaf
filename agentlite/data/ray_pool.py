"""Takes rows on a Ray cluster; to worker_pool it is one more executor."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

TRIES = 3  # times that Ray gives a chunk to another worker after one has died


class RayPool(Executor):
    """The workers of the cluster that RAY_ADDRESS names; without it, those of this machine. Each
    node needs this agentlite, the files that settings name, and the model's tokenizer.

    A chunk whose worker died is taken by another one. A future raises BrokenProcessPool where Ray
    has given up."""

    def __init__(self, begin: Callable[..., None], *job: Any):
        """`begin`: called with `job` in a worker before it takes its first chunk."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray, self.is_ours = ray, not ray.is_initialized()
        if self.is_ours:
            ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.begin, self.job = begin, ray.put(job)
        self.task = ray.remote(max_retries=TRIES)(_take)

    def submit(self, take: Callable[..., Any], /, *chunk: Any, **more: Any) -> Future[Any]:
        # in a list, Ray hands on the reference, and a worker fetches the job once
        reference = self.task.remote(self.job.hex(), [self.job], self.begin, take, *chunk)
        return RayFuture(self.ray, reference)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends this program's tasks, and the cluster if it was begun here."""
        if self.is_ours:
            self.ray.shutdown()


class RayFuture(Future[Any]):
    """The result of a task, asked for when it is needed."""

    def __init__(self, ray: Any, reference: Any):
        super().__init__()
        self.ray, self.reference = ray, reference

    def result(self, timeout: float | None = None) -> Any:
        lost = self.ray.exceptions
        try:
            return self.ray.get(self.reference, timeout=timeout)
        except (
            lost.WorkerCrashedError,
            lost.NodeDiedError,
            lost.ObjectLostError,
            lost.OutOfMemoryError,
        ) as error:
            raise BrokenProcessPool(str(error)) from error


_BEGUN: list[str] = []  # of a worker: the job that it takes rows for


def _take(
    job: str, holder: list[Any], begin: Callable[..., None], take: Callable[..., Any], chunk: Any
) -> Any:
    """One chunk, in a process of Ray's."""
    if [job] != _BEGUN:
        import ray

        begin(*ray.get(holder[0]))
        _BEGUN[:] = [job]
    return take(chunk)
