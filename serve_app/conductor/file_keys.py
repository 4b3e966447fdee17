"""Keys of recordings that nothing may store: each exists in the memory of the Conductor that fetched the file."""

import os
from collections import OrderedDict
from uuid import UUID

MAX_KEYS = 100_000  # the oldest is forgotten: its recording is fetched again


class FileKeys:
    """The keys of one Conductor, by job. A restart forgets them: the recordings are fetched again."""

    def __init__(self) -> None:
        self._keys: OrderedDict[UUID, bytes] = OrderedDict()

    def create(self, job_id: UUID) -> bytes:
        """Return a new key for the files of a job, in place of an earlier one."""
        self._keys[job_id] = os.urandom(32)
        if len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return self._keys[job_id]

    def find(self, job_id: UUID) -> bytes | None:
        return self._keys.get(job_id)

    def forget(self, job_id: UUID) -> None:
        self._keys.pop(job_id, None)
