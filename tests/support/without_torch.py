"""Refuses torch in a quick run: a test that comes to import it is skipped there."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

REASON = "needs torch: left out by --quick"


class _Refusing(MetaPathFinder, Loader):
    """Finds torch, so that it counts as installed, and does not load it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == "torch" else None
        if spec:
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> NoReturn:
        pytest.skip(REASON, allow_module_level=True)

    def exec_module(self, module: ModuleType) -> NoReturn:
        pytest.skip(REASON, allow_module_level=True)


def refuse() -> None:
    """In this process, and in the programs that it starts, where the import is an error."""
    sys.meta_path.insert(0, _Refusing())
    folder = str(Path(__file__).parent / "no_torch")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
