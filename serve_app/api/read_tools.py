import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from db.core.database import Database
from db.search.changes import LatestChanges
from db.secrets.encryption import Sealer
from pipeline.audio.decode.options import DecodeOptions
from pipeline.embedding import EmbeddingOptions
from serve_app.answers.asking import AnsweringModel, CallAsker
from serve_app.api.options import ApiOptions
from serve_app.api.sound import SoundFolder
from serve_app.experiments.comparison_cache import ComparisonCache
from serve_app.http.decoders import Decoders
from serve_app.http.limits import Pace
from serve_app.http.worker import Worker
from serve_app.records.query_embedding import QueryEmbedder
from serve_app.records.waveform import WaveformCache
from serve_app.webhooks.options import WebhookOptions
from serve_app.webhooks.post import Poster


@dataclass(frozen=True, slots=True)
class ReadTools:
    """What a replica of the API or of the console keeps between requests."""

    questions: QueryEmbedder
    sounds: SoundFolder
    comparisons: ComparisonCache
    worker: Worker
    waveforms: WaveformCache
    pace: Pace  # of sound
    poster: Poster
    sealer: Sealer
    asker: CallAsker
    latest: LatestChanges


@asynccontextmanager
async def open_tools(
    database: Database,
    options: ApiOptions,
    decode: DecodeOptions,
    scratch_root: str | None,
    embedding: EmbeddingOptions,
    store: Path | None,
    poster: Poster | None = None,
    sealer: Sealer | None = None,
    answering: AnsweringModel | None = None,
) -> AsyncIterator[ReadTools]:
    """Yield the tools; the model for search by meaning loads in the background. `scratch_root`: see `SoundFolder`."""
    async with AsyncExitStack() as stack:
        decoders = Decoders()
        sounds = SoundFolder(scratch_root, decode, options.SOUND_BYTES, decoders)
        stack.push_async_callback(sounds.close)
        stack.push_async_callback(decoders.close)
        stack.callback(asyncio.create_task(sounds.remove_unused_forever(database)).cancel)
        questions = QueryEmbedder(embedding, store)
        questions.start()
        stack.callback(questions.close)
        worker = Worker()
        stack.push_async_callback(worker.close)
        waveforms = WaveformCache(scratch_root, decode, decoders)
        yield ReadTools(
            *(questions, sounds, ComparisonCache(), worker, waveforms, Pace()),
            poster or Poster(WebhookOptions()),
            sealer or Sealer(),
            CallAsker(database, answering or AnsweringModel(), questions, worker),
            LatestChanges(database),
        )
