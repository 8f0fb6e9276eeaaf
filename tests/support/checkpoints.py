"""A checkpoint whose manifest says something else."""

from pathlib import Path
from typing import Any

import msgspec

from agentlite.engine import checkpoints


def made(checkpoint: Path, **values: Any) -> None:
    """As if it had been made so."""
    path = checkpoint / checkpoints.MANIFEST
    manifest = msgspec.json.decode(path.read_bytes(), type=checkpoints.CheckpointManifest)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, **values)))
