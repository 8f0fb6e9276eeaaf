"""A server of a test that listens in the background."""

import socketserver
import threading

POLL = 0.01  # s; by itself a server looks every half second whether it has to end


def listen(server: socketserver.BaseServer) -> threading.Thread:
    """Listens until `server.shutdown()`, which returns at once. The thread holds no process up."""
    thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
    thread.start()
    return thread
