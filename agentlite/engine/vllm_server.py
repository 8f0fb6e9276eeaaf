"""A vLLM server on other cards that samples for grpo.

TRL opens the connection, merges the adapter into the weights and sends them before each step. The
answers we request one by one, many at a time: TRL's own call has one seed and one list of stop
strings for all prompts of a step.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import NETWORK, UserError
from agentlite.engine.vllm_sampler import Answers, VllmAnswer

CONCURRENT = 64  # requests at once: as many as TRL's client keeps connections for
OWN_OF_CLIENT = ("temperature", "top_p", "max_tokens", "logprobs")  # arguments of its `generate`
PROBE_SECONDS = 20.0
START = (
    'VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config \'{"backend": "nccl"}\' '
    "--logprobs-mode processed_logprobs"
)


def address(settings: GrpoSettings) -> str:
    """Without the /v1 that clients of OpenAI's API write."""
    return settings.vllm_server.rstrip("/").removesuffix("/v1")


def check(settings: GrpoSettings) -> None:
    """Raises UserError 8 where the server does not answer, and 2 where it takes no weights or
    rows as long as max_length.
    """
    url = address(settings)
    found = _get(url, "/v1/models")
    try:
        longest = found.json()["data"][0].get("max_model_len") or settings.max_length
    except (ValueError, LookupError, AttributeError, TypeError):
        raise _unusable(settings, "is not a vLLM server.") from None
    if _get(url, "/get_world_size").status_code != 200:
        raise _unusable(settings, "takes no weights: it was started without what that needs.")
    if longest < settings.max_length:
        raise UserError(
            f"the server takes {longest} tokens, and max_length is {settings.max_length}.",
            f"Start it with --max-model-len {settings.max_length}, or lower --max-length.",
            location="grpo.vllm_server",
        )


def _get(url: str, path: str) -> Any:
    import httpx

    proxies = urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")
    try:
        return httpx.get(url + path, timeout=PROBE_SECONDS, trust_env=proxies)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise _gone(url, error, f"Start it: {START}") from error


def _unusable(settings: GrpoSettings, problem: str) -> UserError:
    return UserError(f"{address(settings)} {problem}", f"Start it so: {START}")


def _gone(url: str, error: Exception, fix: str) -> UserError:
    cause = str(error) or type(error).__name__
    return UserError(f"the vLLM server failed: {cause}", fix, location=url, exit_code=NETWORK)


@contextmanager
def explained(settings: GrpoSettings) -> Iterator[None]:
    """What TRL's client raises becomes a UserError 8; `with` it, if a server samples."""
    if not settings.vllm_server:
        yield
        return
    from requests import RequestException

    try:
        yield
    except Exception as error:
        # TRL raises Exception itself where a response has another status than 200
        if not (isinstance(error, RequestException) or type(error) is Exception):
            raise
        raise _gone(
            address(settings),
            error,
            "Start it again if it is gone. The same command then carries on from the last "
            "checkpoint.",
        ) from error


def guard(trl_trainer: Any, settings: GrpoSettings) -> None:
    """TRL sends the weights itself: what goes wrong then is explained as well."""
    generation = trl_trainer.vllm_generation
    send = generation.sync_weights

    def sync_weights() -> None:
        with explained(settings):
            send()

    generation.sync_weights = sync_weights


def of_server(trl_trainer: Any, settings: GrpoSettings) -> Answers:
    """The answers of the server to which TRL sends its weights. Every process asks for those of its
    own prompts, once the weights are there.
    """
    generation = trl_trainer.vllm_generation
    with explained(settings):
        client = getattr(generation, "vllm_client", None) or _client(address(settings))
    # without a limit, a server that hangs would hold the run for ever
    client.session.request = partial(client.session.request, timeout=settings.endpoint_seconds)

    def answers(
        prompts: Sequence[Sequence[int]], parameters: Sequence[dict[str, Any]]
    ) -> list[VllmAnswer]:
        with (
            explained(settings),
            ThreadPoolExecutor(max(1, min(CONCURRENT, len(prompts)))) as threads,
        ):
            return list(threads.map(partial(_answer, client), prompts, parameters))

    return answers


def _client(url: str) -> Any:
    """Of a process that sends no weights: TRL gives the first one a client."""
    from trl.generation.vllm_client import VLLMClient

    return VLLMClient(base_url=url)


def _answer(client: Any, prompt: Sequence[int], parameters: dict[str, Any]) -> VllmAnswer:
    own = {name: parameters[name] for name in OWN_OF_CLIENT}
    others = {name: value for name, value in parameters.items() if name not in own}
    reply = client.generate([list(prompt)], **own, generation_kwargs=others)
    return VllmAnswer(reply["completion_ids"][0], [likely for (likely,) in reply["logprobs"][0]])
