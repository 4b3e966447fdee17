"""The deadly engine in a replica. A separate file, since importing Ray takes three seconds."""

import os

from pipeline import asr
from pipeline.runtime.actors import TranscriberReplica


class DeadlyReplica(TranscriberReplica):
    """The Transcriber with that engine."""

    def __init__(self) -> None:
        asr.ENGINES["deadly"] = "tests.chaos.deadly:Deadly"  # in the replica's process alone
        super().__init__({"engine": "deadly"})

    async def pid(self) -> int:
        return os.getpid()
