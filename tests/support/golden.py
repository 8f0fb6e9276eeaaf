"""Digests of what is computed, and the stored values to compare them with.

`AGENTLITE_GOLDEN=write bash scripts/test.sh -n 0 tests/golden` writes the values anew: in a commit
of its own, which says why.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

VALUES = ROOT / "tests/golden/values"
WRITE = os.environ.get("AGENTLITE_GOLDEN") == "write"
Golden = Callable[..., None]


def digest(value: Any) -> str:
    """Of bytes, or of any value that JSON can hold; its fractions with nine digits, since the last
    ones depend on the processor.
    """
    if not isinstance(value, bytes):
        value = json.dumps(rounded(value), sort_keys=True, ensure_ascii=False).encode()
    return hashlib.sha256(value).hexdigest()[:16]


def rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def digests(folder: Path) -> dict[str, str]:
    """Of each file that a stage leaves, but for the two that name settings and times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): digest(path.read_bytes())
        for path in files
        if path.name not in ("plan.json", "done.json") and not path.name.startswith(".")
    }


def compare(path: Path, name: str, value: Any, within: float) -> None:
    """With the value of that name in the file: numbers may differ by the share `within`."""
    value = json.loads(json.dumps(value))
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if WRITE:
        text = json.dumps({**stored, name: value}, indent=1, sort_keys=True, ensure_ascii=False)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
        return
    found = list(differences(stored[name], value, within))
    assert not found, f"{name} is another: {'; '.join(found[:10])}"


def differences(stored: Any, value: Any, within: float, place: str = "") -> Iterator[str]:
    """Where two values of JSON differ, and how."""
    if isinstance(stored, Mapping) and isinstance(value, Mapping):
        for key in sorted({*stored, *value}):
            yield from differences(stored.get(key), value.get(key), within, f"{place}/{key}")
    elif isinstance(stored, list) and isinstance(value, list) and len(stored) == len(value):
        for index, (before, after) in enumerate(zip(stored, value, strict=True)):
            yield from differences(before, after, within, f"{place}/{index}")
    elif isinstance(stored, float) and isinstance(value, int | float):
        if value != pytest.approx(stored, rel=within, abs=within):
            yield f"{place}: {stored} -> {value}"
    elif stored != value:
        yield f"{place}: {stored!r} -> {value!r}"
