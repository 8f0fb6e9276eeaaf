"""Two network namespaces that a cable joins, each in the part of a machine; not a test itself."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from support import processes


class Machine(NamedTuple):
    """A namespace with one network device and one address, which no other namespace can see."""

    name: str
    device: str
    address: str

    def start(
        self, *words: object, variables: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A program of this Python on this machine."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **processes.environment(),
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": self.device,
                **(variables or {}),
            },
        )

    def set_link(self, state: str) -> None:
        """`down` and `up`: the machine is cut off, and joined again."""
        _ip("-n", self.name, "link", "set", self.device, state)


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Skips the test where the system does not let this user make namespaces."""
    first, second = (
        Machine(f"agentlite-{os.getpid()}-{number}", f"cable{number}", f"10.29.0.{number}")
        for number in (1, 2)
    )
    try:
        for machine in (first, second):
            _make(machine)
        _ip(
            *("link", "add", first.device, "netns", first.name, "type", "veth"),
            *("peer", "name", second.device, "netns", second.name),
        )
        for machine in (first, second):
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", machine.device)
            machine.set_link("up")
            _ip("-n", machine.name, "link", "set", "lo", "up")
        yield first, second
    finally:
        for machine in (first, second):
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True)


def _make(machine: Machine) -> None:
    try:
        _ip("netns", "add", machine.name)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        pytest.skip(f"`ip netns add` does not work here: {said.strip()}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
