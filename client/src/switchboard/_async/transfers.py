import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import httpx

from switchboard._async.session import AsyncSession
from switchboard._attempts import Attempts
from switchboard._transfers import EXPORT_SECONDS, MEDIA, SOUND, OnBytes, PartFile, Recording, Sink, check_whole
from switchboard._waits import async_sleep
from switchboard.errors import TransferCut
from switchboard.filters import CallFilters, Channel, ExportFormat, Include, Version

if TYPE_CHECKING:
    import pandas
    import polars


class AsyncTransfers:
    """Exports, tables and recordings."""

    _session: AsyncSession

    async def export(
        self,
        path: str | Path,
        *,
        format: ExportFormat = "parquet",
        include: Sequence[Include] = (),
        version: Version = "corrected",
        on_progress: OnBytes | None = None,
        **filters: Unpack[CallFilters],
    ) -> Path:
        """Write all matching calls to a file atomically; return its path.

        `include`: `transcript` for ndjson and parquet, `edits` for ndjson. Raises `TransferCut`.
        """
        parameters = {**filters, "format": format, "include": include or None, "version": version}
        with PartFile(path) as part:
            try:
                async with self._session.stream(
                    "exportCalls", parameters, MEDIA[format], read=EXPORT_SECONDS
                ) as answer:
                    async for piece in answer.aiter_bytes():
                        part.file.write(piece)
                        if on_progress:
                            on_progress(part.file.tell(), None)
            except httpx.TransportError as lost:
                raise TransferCut(
                    f"the export was cut after {part.file.tell()} bytes ({type(lost).__name__}). Retry."
                ) from lost
            check_whole(part.file, format)
            return part.keep()

    async def to_pandas(
        self, *, words: bool = False, version: Version = "corrected", **filters: Unpack[CallFilters]
    ) -> "pandas.DataFrame":
        """Return a data frame with a row per matching call. `words`: add the column `words` with words and seconds.

        Needs `switchboard-calls-client[pandas]`. Raises `TransferCut` if the export is incomplete.
        """
        import pandas

        with tempfile.TemporaryDirectory() as folder:
            include: tuple[Include, ...] = ("transcript",) if words else ()
            path = await self.export(Path(folder) / "calls.parquet", include=include, version=version, **filters)
            return pandas.read_parquet(path, engine="pyarrow")

    async def to_polars(
        self, *, words: bool = False, version: Version = "corrected", **filters: Unpack[CallFilters]
    ) -> "polars.DataFrame":
        """Return a data frame with a row per matching call. `words`: add the column `words` with words and seconds.

        Needs `switchboard-calls-client[polars]`. Raises `TransferCut` if the export is incomplete.
        """
        import polars

        with tempfile.TemporaryDirectory() as folder:
            include: tuple[Include, ...] = ("transcript",) if words else ()
            path = await self.export(Path(folder) / "calls.parquet", include=include, version=version, **filters)
            return polars.read_parquet(path)

    async def audio(
        self,
        call_id: UUID | str,
        *,
        channel: Channel | None = None,
        unredacted: bool = False,
        on_progress: OnBytes | None = None,
    ) -> bytes:
        """Return the recording: `original` as fetched; `mixed`, `rep` or `customer` as WAV, 16 kHz, 16 bits, mono.

        By default the original, or the mix if there are two files. `unredacted`: with the sound that a policy has
        sealed; needs the scope `unredacted`, and is logged. Raises `NotReady`.
        """
        sink = io.BytesIO()
        await self._fetch(call_id, channel, unredacted, sink, on_progress)
        return sink.getvalue()

    async def download_audio(
        self,
        call_id: UUID | str,
        path: str | Path,
        *,
        channel: Channel | None = None,
        unredacted: bool = False,
        on_progress: OnBytes | None = None,
    ) -> Path:
        """Write the recording to a file atomically; return its path. Otherwise like `audio`."""
        with PartFile(path) as part:
            await self._fetch(call_id, channel, unredacted, part.file, on_progress)
            return part.keep()

    async def _fetch(
        self, call_id: UUID | str, channel: Channel | None, unredacted: bool, sink: Sink, on_progress: OnBytes | None
    ) -> None:
        """Download a recording. A lost connection is resumed as long as bytes arrive within the timeout."""
        recording = Recording(sink, on_progress)
        attempts = Attempts(self._session.timeout)
        while True:
            before = recording.received
            try:
                await self._receive(recording, call_id, {"channel": channel, "unredacted": unredacted or None})
                return
            except httpx.TransportError as lost:
                if recording.received > before:
                    attempts = Attempts(self._session.timeout)
                await async_sleep(attempts.after_loss(lost))

    async def _receive(self, recording: Recording, call_id: UUID | str, query: Mapping[str, Any]) -> None:
        async with self._session.stream(
            "playCall", query, SOUND, headers=recording.headers(), call_id=call_id
        ) as answer:
            recording.begin(answer)
            async for piece in answer.aiter_raw():
                recording.add(piece)
        if not recording.is_whole:
            raise httpx.RemoteProtocolError("the response is incomplete")
