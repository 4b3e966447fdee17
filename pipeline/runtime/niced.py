"""Actors of the lowest priority from their beginning. Does not use Ray.

What they run is imported after they give way: Serve and PyTorch take seconds of a processor, which live calls need.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from pipeline.runtime.priority import be_nice


class NicedEngine:
    """A replica, which is asked by the names of its methods; what it is made of are the arguments."""

    replica: ClassVar[str]

    def __init__(self, *args: Any) -> None:
        be_nice()
        self._replica = _named(self.replica)(*args)

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """What the replica's method answers."""
        return await getattr(self._replica, method)(*args, **options)


class NicedTranscriber(NicedEngine):
    """A recognition engine."""

    replica = "pipeline.runtime.actors.TranscriberReplica"


class NicedDiarizer(NicedEngine):
    """A diarization engine."""

    replica = "pipeline.runtime.diarizer.DiarizerReplica"


class NicedProcess:
    """A process for CPU work. `run` names what runs a function there: (context, function, arguments)."""

    def __init__(self, run: str) -> None:
        be_nice()
        self._run = _named(run)

    def run(self, about: Any, fn: Callable[..., Any], *args: Any) -> Any:
        """What the function returns."""
        return self._run(about, fn, *args)

    def run_and_tell(self, about: Any, fn: Callable[..., Any], *args: Any) -> tuple[Any, None]:
        """The same, and a small second result to wait for."""
        return self._run(about, fn, *args), None


def _named(what: str) -> Any:
    module, _, name = what.rpartition(".")
    return getattr(import_module(module), name)
