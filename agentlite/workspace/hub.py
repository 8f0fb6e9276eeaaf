"""A hub id with its commit -> the files of that very commit, fetched once."""

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentlite.config.this_machine import keep_private
from agentlite.core import console
from agentlite.core.errors import MODEL, NETWORK, UserError
from agentlite.core.row_files import disk_error

COMMIT = re.compile("[0-9a-f]{40}")
CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# beside the configuration, the weights, and the files that `load_template` needs: what transformers
# reads of a model and its tokenizer, where a repository has it
OPTIONAL_FILES = (
    "generation_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
)
IMPLEMENTATION_KEYS = {
    f"{start}{kind}_implementation{end}"
    for start in ("", "_")
    for kind in ("attn", "experts")
    for end in ("", "_internal")
}
DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def is_hub_id(name: str) -> bool:
    """`org/model`, or with a commit, tag or branch: `org/model@v1.0`."""
    model = name.partition("@")[0]
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))


def hub_id(base: str) -> str:
    """As the hub names it, without the commit. Folders and aliases come back as they are."""
    return base.partition("@")[0] if is_hub_id(base) and not Path(base).is_dir() else base


def commit_of(base: str) -> str:
    """The commit of a pinned hub id; "" for any other base."""
    commit = base.partition("@")[2]
    return commit if hub_id(base) != base and COMMIT.fullmatch(commit) else ""


def hub_id_and_commit(snapshot: str) -> tuple[str, str]:
    """The hub id and the commit of a folder in the hub's cache; two empty texts for another one.
    `…/models--org--a--b/snapshots/COMMIT` -> `org/a--b` and COMMIT."""
    folder = Path(snapshot)
    model, commit = folder.parents[1].name if len(folder.parts) > 2 else "", folder.name
    if not model.startswith("models--") or not COMMIT.fullmatch(commit):
        return "", ""
    return model.removeprefix("models--").replace("--", "/", 1), commit


def pin_commit(name: str, commit: str = "") -> str:
    """`org/model@commit`: at `commit`, or else at the one that the name stands for now, as the hub
    says or, offline, its cache. Raises UserError 5 or 8.
    """
    commit = commit or commit_of(name) or hub_file(name, CONFIG).parent.name
    return f"{hub_id(name)}@{commit}"


def pin_model(name: str, commit: str) -> str:
    """The same for a model that is to be loaded. Raises UserError 5 for one with its own code."""
    base = pin_commit(name, commit)
    refuse_own_code(hub_file(base, CONFIG))
    return base


def refuse_own_code(config: Path) -> None:
    """Raises UserError 5 for a config.json that names code to be fetched and run: kernels of the
    hub, by a key that only transformers itself should write, or by a repository."""
    try:
        values = [json.loads(config.read_bytes())]
    except (ValueError, RecursionError) as error:
        raise model_error(config, f"is not JSON: {error}.", "Fetch the model again.") from error
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        if not isinstance(value, dict):
            continue
        values += value.values()
        for key in value.keys() & IMPLEMENTATION_KEYS:
            if key.endswith("_internal") or "/" in str(value[key]):
                raise model_error(
                    config,
                    f"{key} names code, and agentlite never runs a model's own code.",
                    "Remove that line, if you trust the rest.",
                )


def model_error(location: object, problem: str, fix: str) -> UserError:
    return UserError(problem, fix, location=str(location), exit_code=MODEL)


def model_snapshot(base: str, in_4bit: bool = False) -> Path:
    """The folder with all that a pinned model is loaded from: configuration, tokenizer, and weights
    as safetensors. The hub is asked for nothing that the cache has. `in_4bit`: how it is to be
    loaded. Raises UserError 5, 8 or 74.
    """
    folder = hub_file(base, CONFIG).parent
    if _missing_weights(folder):
        if in_4bit:
            _name_smaller_mirror(base)
        for file in (*OPTIONAL_FILES, INDEX):
            hub_file(base, file, required=False)
        for file in _missing_weights(folder):
            hub_file(base, file)
    return folder


def _name_smaller_mirror(base: str) -> None:
    """Says so where Unsloth's mirror in 4 bit is less than half of what is to be fetched."""
    from httpx import HTTPError
    from huggingface_hub import HfApi

    mirror = f"unsloth/{hub_id(base).partition('/')[2]}-bnb-4bit"
    try:
        size, mirror_size = (
            sum(
                (file.size or 0) / 1e9
                for file in HfApi().model_info(name, files_metadata=True).siblings or ()
                if re.fullmatch(r"model.*\.safetensors", file.rfilename)
            )
            for name in (hub_id(base), mirror)
        )
    except (HTTPError, OSError):
        return
    if 0 < mirror_size < size / 2:
        console.notice(
            f"{base}: fetching {size:.1f} GB in 16 bit, to load them in 4 bit; "
            f"{mirror} is such a model and has {mirror_size:.1f} GB"
        )


def _missing_weights(folder: Path) -> list[str]:
    index = folder / INDEX  # "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}
    names = json.loads(index.read_bytes())["weight_map"].values() if index.exists() else [WEIGHTS]
    return [name for name in sorted({*names}) if not (folder / name).exists()]


def hub_file(name: str, file: str, required: bool = True, *, location: str = "--model") -> Path:
    """A file of a hub id, fetched or from the cache, of its commit if it is pinned; an empty path
    for one that is not `required` and does not exist. `location`: --model, or that of a data set.
    Raises UserError 5, 8 or 74.
    """
    keep_private()
    from huggingface_hub import errors, hf_hub_download

    model, _, revision = name.partition("@")
    repo_type = "model" if location == "--model" else "dataset"
    with _hub_request(file, name, location):
        try:
            path = hf_hub_download(model, file, revision=revision or None, repo_type=repo_type)
            return Path(path)
        except errors.EntryNotFoundError as error:  # LocalEntryNotFoundError is one as well
            if not required:
                return Path()
            problem, code = f"{name} has no {file}.", MODEL
            fix = "Choose a model whose weights are safetensors." if file == WEIGHTS else ""
            if isinstance(error, errors.LocalEntryNotFoundError):
                problem = (
                    f"{file} of {name} is not in the cache, and the hub cannot be reached (or "
                    "HF_HUB_OFFLINE is set)."
                )
                local = "a folder, the embedded smollm2-135m" if repo_type == "model" else "files"
                code, fix = NETWORK, f"Name {local}, or set HF_ENDPOINT to a mirror."
            raise UserError(problem, fix, location=location, exit_code=code) from error


def data_set_info(name: str, revision: str) -> Any:
    """What the hub says of a data set: its commit, files and card. Raises UserError 5 or 8."""
    keep_private()
    from huggingface_hub import HfApi

    with _hub_request("the files", f"{name}#{revision}".rstrip("#"), f"hub:{name}"):
        return HfApi().dataset_info(name, revision=revision or None, files_metadata=True)


@contextmanager
def _hub_request(file: str, name: str, location: str) -> Iterator[None]:
    """Says what is waited for. Raises UserError 5, 8 or 74."""
    from httpx import HTTPError
    from huggingface_hub import constants, errors

    try:
        with console.waiting(f"asking the hub for {file} of {name}"):
            yield
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ) as error:
        raise UserError(
            f"the hub has no {name}, or it is gated.",
            "Check the name, and its commit, tag or branch; for a private or a gated one, ask for "
            "access on its page, then `hf auth login`.",
            location=location,
            exit_code=MODEL,
        ) from error
    except (HTTPError, OSError) as error:  # the hub's own errors of a reply are both
        if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
            raise disk_error(Path(constants.HF_HUB_CACHE), error) from error
        raise UserError(
            f"the hub does not answer, and what is asked is not in the cache: {error}",
            f"Try again, or name {'a folder' if location == '--model' else 'a file'}.",
            location=location,
            exit_code=NETWORK,
        ) from error
