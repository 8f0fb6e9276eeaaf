"""Our own server of a model, in the background."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentlite.deploy.server import Server


@contextmanager
def serving(chat_model: Any) -> Iterator[Server]:
    with Server(chat_model, 0) as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()
