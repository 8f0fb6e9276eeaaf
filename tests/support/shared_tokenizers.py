"""One reading of a tokenizer for all tests of a process and of its forks; not a test itself.

To read a vocabulary of 49,152 tokens takes half a second, as long as a tiny model takes to be
trained. The vocabulary alone is shared: each reader gets an object with attributes of its own, so
that no test sees the template, the side or the length that another one sets.
"""

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
CHOOSING = ("model_type", "tokenizer_class", "auto_map")
# what a reader says of its own object, and what plays no part where the files are in a folder
OWN = {"model_max_length", "padding_side"}
OF_THE_HUB = {"token", "revision", "trust_remote_code", "local_files_only"}


def share() -> None:
    """From here on `AutoTokenizer.from_pretrained` reads equal files once."""
    from transformers import AutoTokenizer

    read = AutoTokenizer.from_pretrained
    known: dict[str, Any] = {}
    sizes: dict[str, int] = {}

    def from_pretrained(name: Any, **settings: Any) -> Any:
        folder = Path(name)
        if settings.keys() - OWN - OF_THE_HUB or not (folder / FILES[0]).is_file():
            return read(name, **settings)
        key = _digest(folder)
        if key not in known or len(known[key]) != sizes[key]:  # somebody has added tokens to it
            known[key] = read(name)
            sizes[key] = len(known[key])
        tokenizer = _with_own_attributes(known[key])
        tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = str(name)
        for attribute in OWN & settings.keys():
            setattr(tokenizer, attribute, settings[attribute])
            tokenizer.init_kwargs[attribute] = settings[attribute]
        return tokenizer

    from_pretrained.reads_files = read  # type: ignore[attr-defined]
    AutoTokenizer.from_pretrained = staticmethod(from_pretrained)


def read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that watches what is read."""
    from transformers import AutoTokenizer

    shared = AutoTokenizer.from_pretrained
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", getattr(shared, "reads_files", shared))


def read_before() -> None:
    """Reads the tokenizer of the tests' models, so that forks have it."""
    from transformers import AutoTokenizer

    from agentlite.workspace.input_files import embedded_folder

    AutoTokenizer.from_pretrained(str(embedded_folder("smollm2-135m")))


def _digest(folder: Path) -> str:
    files = [folder / name for name in FILES]
    contents = [file.read_bytes() if file.is_file() else b"" for file in files]
    return " ".join(hashlib.sha256(one).hexdigest() for one in [*contents, _classes(folder)])


def _classes(folder: Path) -> bytes:
    """What AutoTokenizer chooses a class by in a model's configuration."""
    path = folder / "config.json"
    config = json.loads(path.read_bytes()) if path.is_file() else {}
    return json.dumps([config.get(key) for key in CHOOSING]).encode()


def _with_own_attributes(tokenizer: Any) -> Any:
    own = copy.copy(tokenizer)
    for name, value in vars(tokenizer).items():
        if isinstance(value, (dict, list, set)):
            setattr(own, name, copy.copy(value))
    return own
