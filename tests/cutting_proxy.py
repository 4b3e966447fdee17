"""A TCP proxy on the loopback address that cuts connections after so many bytes of the server's."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PIECE = 4096


@dataclass
class Proxy:
    """`cuts`: bytes of the server's after which the next connections are cut, one after another; then none is."""

    url: str
    cuts: list[int] = field(default_factory=list)
    connections: int = 0


@contextmanager
def cutting(base_url: str) -> Iterator[Proxy]:
    """Start a proxy in front of the server at `base_url`."""
    to = urlsplit(base_url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_accept, args=(listener, (to.hostname, to.port), proxy), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(10)


def _accept(listener: socket.socket, to: tuple[str, int], proxy: Proxy) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        proxy.connections += 1
        remaining = proxy.cuts.pop(0) if proxy.cuts else None
        server = socket.create_connection(to)
        threading.Thread(target=_pump, args=(client, server, None), daemon=True).start()
        threading.Thread(target=_pump, args=(server, client, remaining), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, remaining: int | None) -> None:
    """Until either ends, or `left` bytes have gone through; then both are closed."""
    with contextlib.suppress(OSError):
        while remaining is None or remaining > 0:
            piece = source.recv(PIECE if remaining is None else min(PIECE, remaining))
            if not piece:
                break
            sink.sendall(piece)
            remaining = None if remaining is None else remaining - len(piece)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
