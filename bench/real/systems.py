"""The systems that are compared: this pipeline and faster-whisper as it comes, on the same files, same weights.

All compute with one thread, int8, beam 5. `Switchboard` runs `pipeline.process` in this process as `switchboard
process` does. The raw ways get each channel of a call by itself, in English where the checkpoint knows nothing else,
and else detect the language: "plain" (`WhisperModel.transcribe`), "vad" (with `vad_filter`), "batched"
(`BatchedInferencePipeline`, four windows at a time as the pipeline on a CPU).
"""

import asyncio
import hashlib
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.real.outputs import Doubted, HeardLabel, HeardTurn, RecognizedWord, SystemOutput
from bench.real.sources import RATE
from pipeline.process import Outcome

RAW_WAYS = ("plain", "vad", "batched")
BATCH_SIZE = 4
PARTS = {  # of the pipeline, by the module of what is computed
    "pipeline.audio.prosody": "prosody",
    "pipeline.audio": "audio",
    "pipeline.steps.recognize": "audio",
    "pipeline.speakers": "speakers",
    "pipeline.analysis": "analysis",
}


class Switchboard:
    """This pipeline with a Whisper checkpoint and a diarization engine with its pipeline, each a name of the store or a
    folder."""

    name = "switchboard"

    def __init__(
        self, model: str, checkpoint: str, diarization: str, vocabulary: str = "auto", engine: str = "pyannote"
    ) -> None:
        from pipeline import asr
        from pipeline import diarization as voices

        self.model = model
        recognition = asr.AsrOptions(
            model=checkpoint, device="cpu", cpu_threads=1, batch_size=BATCH_SIZE, vocabulary=vocabulary
        )
        options = voices.DiarizationOptions(engine=engine, pipeline=diarization, device="cpu", threads=1)
        self._workers = _metered(lambda: asr.load(recognition), lambda: voices.load(options))
        self.recorded: dict[Any, Any] = {}  # results of the stages of the last call
        self.outcome: Outcome | None = None  # of the last call

    def __call__(self, *paths: Path, terms: Sequence[str] = ()) -> SystemOutput:
        """Return the output for a recording of one or two channels, or one per party; `terms` are the workspace's."""
        from pipeline.domain.call import Call
        from pipeline.domain.insight import Roster
        from pipeline.domain.speech import Recording
        from pipeline.domain.stage import Stage
        from pipeline.journal import MemoryJournal
        from pipeline.options import ProcessOptions
        from pipeline.process import process

        contents = [path.read_bytes() for path in paths]
        recordings = tuple(
            Recording(channel, path.resolve().as_uri(), hashlib.sha256(content).hexdigest(), len(content))
            for channel, (path, content) in enumerate(zip(paths, contents, strict=True))
        )

        asyncio.run(self._workers.load())
        self._workers.seconds.clear()
        call = Call(uuid.uuid4(), "anonymous", "anonymous", datetime.now(UTC))
        roster = Roster(terms=tuple(terms))
        before = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            options = ProcessOptions(scratch=Path(folder).as_uri())
            journal = MemoryJournal({Stage.FETCH: recordings})
            outcome = asyncio.run(process(call, self._workers, roster, journal, options))
            self.recorded, self.outcome = journal.results, outcome
        seconds = dict(self._workers.seconds)
        seconds["rest"] = max(0.0, time.process_time() - before - sum(seconds.values()))
        return _output(paths[0].stem, self.model, outcome.transcript, seconds)


class Raw:
    """faster-whisper in one of `RAW_WAYS`, with the checkpoint in `folder`."""

    def __init__(self, way: str, model: str, folder: Path) -> None:
        self.name = way
        self.model = model
        self._folder = folder
        self._whisper: Any = None

    def __call__(self, path: Path) -> SystemOutput:
        """Return the output for a recording; each channel is transcribed separately."""
        import soundfile
        import soxr

        transcribe = self._transcriber()
        before = time.process_time()
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if rate != RATE:
            samples = soxr.resample(samples, rate, RATE)
        read = time.process_time()
        words: list[RecognizedWord] = []
        languages: list[str] = []
        for channel in range(samples.shape[1]):
            segments, info = transcribe(samples[:, channel].copy())
            languages.append(info.language)
            words += [
                RecognizedWord(float(word.start), float(word.end), word.word, float(word.probability), channel=channel)
                for segment in segments
                for word in segment.words or ()
            ]
        seconds = {"audio": read - before, "recognition": time.process_time() - read}
        return SystemOutput(path.stem, self.name, self.model, tuple(words), seconds, languages[0], engine=self._engine)

    @property
    def _engine(self) -> str:
        import faster_whisper

        return f"faster-whisper {faster_whisper.__version__}"

    def _transcriber(self) -> Callable[[Any], Any]:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        if self._whisper is None:
            self._whisper = WhisperModel(str(self._folder), device="cpu", compute_type="int8", cpu_threads=1)
        options: dict[str, Any] = {"word_timestamps": True, "language": "en" if self.model.endswith(".en") else None}
        if self.name == "batched":
            pipeline = BatchedInferencePipeline(self._whisper)
            return lambda sound: pipeline.transcribe(sound, batch_size=BATCH_SIZE, **options)
        if self.name == "vad":
            options["vad_filter"] = True
        return lambda sound: self._whisper.transcribe(sound, **options)


def _metered(transcriber: Callable[[], Any], diarizer: Callable[[], Any]) -> Any:
    """`LocalWorkers` that do one thing at a time, so that the processor seconds of each part are known."""
    from pipeline.runtime.workers import LocalWorkers

    class Metered(LocalWorkers):
        def __init__(self) -> None:
            super().__init__(transcriber, diarizer)
            self.seconds: dict[str, float] = defaultdict(float)

        async def load(self) -> None:
            """Load the engines and start a new event loop's locks."""
            self._loading = {name: asyncio.Lock() for name in self._engines}
            self._room = {}
            self._turn = asyncio.Lock()
            for name in self._engines:
                await self._engine(name)
            self._loading = {name: asyncio.Lock() for name in self._engines}
            self._room = {}

        async def _spent(self, part: str, work: Callable[[], Any]) -> Any:
            async with self._turn:
                before = time.process_time()
                try:
                    return await work()
                finally:
                    self.seconds[part] += time.process_time() - before

        async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
            return await self._spent(_part(fn), lambda: super(Metered, self).compute(fn, *args))

        async def transcribe(self, *args: Any, **kwargs: Any) -> Any:
            return await self._spent("recognition", lambda: super(Metered, self).transcribe(*args, **kwargs))

        async def diarize(self, *args: Any, **kwargs: Any) -> Any:
            return await self._spent("diarization", lambda: super(Metered, self).diarize(*args, **kwargs))

        async def voiceprint(self, *args: Any, **kwargs: Any) -> Any:
            return await self._spent("voiceprint", lambda: super(Metered, self).voiceprint(*args, **kwargs))

    return Metered()


def _part(fn: Callable[..., Any]) -> str:
    module = getattr(fn, "__module__", "")
    return next((part for name, part in PARTS.items() if module.startswith(name)), "rest")


def _output(name: str, model: str, transcript: Any, seconds: dict[str, float]) -> SystemOutput:
    separated = transcript.layout.kind.separated
    second = {speaker.label for speaker in transcript.speakers if separated and speaker.role.value == "customer"}
    words = []
    for index, turn in enumerate(transcript.turns):
        words += [
            RecognizedWord(
                word.start, word.end, _spaced(word), word.confidence, word.doubtful, int(turn.speaker in second), index
            )
            for word in turn.words
        ]
    return SystemOutput(
        call=name,
        system=Switchboard.name,
        model=model,
        words=tuple(words),
        seconds=seconds,
        language=transcript.language,
        turns=tuple(HeardTurn(turn.speaker, turn.language, turn.machine) for turn in transcript.turns),
        roles={speaker.label: speaker.role.value for speaker in transcript.speakers},
        doubts=tuple(Doubted(d.channel, d.start, d.end, d.kept, tuple(d.reasons)) for d in transcript.doubts),
        labels=_labels(transcript.labels),
        layout=transcript.layout.kind.value,
        layout_confidence=transcript.layout.confidence,
        engine=transcript.engine,
    )


def _spaced(word: Any) -> str:
    """Return the word with a space before it, unless it joins the previous one: scripts without spaces."""
    return str(word.text) if getattr(word, "joined", False) else f" {word.text}"


def _labels(labels: Sequence[Sequence[Any]]) -> tuple[HeardLabel, ...]:
    return tuple(
        HeardLabel(channel, label.start, label.end, label.kind.value)
        for channel, channel_labels in enumerate(labels)
        for label in channel_labels
    )
