"""The audio stage: stored files -> channels -> labels -> speech -> chunks."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio import chunks
from pipeline.audio.channels import separation
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import Decoded, DecodeOptions, decode
from pipeline.audio.labels import keypad_digits, labeling
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.speech import Audio, AudioAnalysis, Layout, Recording
from pipeline.errors import RecordingError, StorageError

LEAST_SECONDS = 0.5  # of a whole recording; of less, Whisper writes "you" or "Sorry" whatever it holds
MAX_SKIPPED_PAUSE = 30.0  # seconds of the longest pause that is left out of a chunk


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The sound of a call, and how its channels were separated."""

    audio: Audio
    layout: Layout
    warnings: tuple[str, ...] = ()
    folder: str | None = None  # where its scratch files lie; None: the samples are in memory


def load(
    recordings: Sequence[Recording],
    decode_options: DecodeOptions,
    expected_files: int | None = None,
    scratch: str | None = None,
    name: str | None = None,
    swapped: bool = False,
) -> Loaded:
    """Decode the one or two files of a call and separate its channels.

    `expected_files`: how many were submitted, if fewer could be fetched. Of two files, one that is not audio is left
    out with a warning. `scratch`: an fsspec folder that keeps decoded sound until `sound.discard`; left out, the
    samples stay in memory, which is for short calls. `name`: the name of this load's folder in it, if the caller must
    know it in advance (see `sound.new_name`). `swapped`: the customer is on the first channel, or in the first file.
    Raises what `decoder.decode` raises for the only file, or for the first
    if neither can be used.
    """
    if scratch is None:
        return _load(recordings, decode_options, expected_files, None, swapped)
    sound.sweep(scratch)
    folder = sound.join(scratch, name or sound.new_name())
    try:
        return _load(recordings, decode_options, expected_files, folder, swapped)
    except BaseException:
        with contextlib.suppress(StorageError):  # the original error matters more; `sweep` removes what stays
            sound.discard(folder)
        raise


def _load(
    recordings: Sequence[Recording],
    decode_options: DecodeOptions,
    expected_files: int | None,
    folder: str | None,
    swapped: bool,
) -> Loaded:
    ordered = sorted(recordings, key=lambda recording: recording.channel)
    if len(ordered) == 2 or (ordered and ordered[0].channel == 1):
        expected_files = 2  # also where only the second file is here: the first could not be fetched
    decoded: list[Decoded] = []
    usable: list[int] = []  # the channels of what could be decoded
    failures: list[RecordingError] = []
    warnings: list[str] = []
    for recording in ordered:
        prefix = f"File {recording.channel + 1}: " if expected_files == 2 else ""
        try:
            decoded.append(decode(recording, decode_options, folder))
            usable.append(recording.channel)
        except RecordingError as error:
            failures.append(error)
            warnings.append(f"{prefix}{error.message}")
        else:
            warnings += [f"{prefix}{warning}" for warning in decoded[-1].warnings]
    if not decoded:
        raise failures[0]
    leg = usable[0] if expected_files == 2 and len(usable) == 1 else None
    audio, layout = separation.separate(decoded, leg, swapped)
    return Loaded(audio, layout, tuple(warnings), folder)


def analyze_audio(
    loaded: Loaded,
    speech_options: SpeechOptions,
    max_chunk_seconds: float,
    packing: bool = False,
    keep_digits: bool = False,
) -> AudioAnalysis:
    """Label every second of each channel; cut what is speech into chunks of at most `max_chunk_seconds`.

    `packing`: whether pauses may be left out of a chunk, up to `MAX_SKIPPED_PAUSE`. `keep_digits`:
    whether labels say which keys were pressed, and not only how many; `typed` has the exceptions. A recording of less
    than `LEAST_SECONDS` has no chunks, and a warning.
    """
    audio = loaded.audio
    warnings = loaded.warnings
    labeled = labeling.label(audio, speech_options)
    speech = tuple(labeling.speech_of(channel) for channel in labeled)
    skipped = MAX_SKIPPED_PAUSE if packing else 0.0
    events, gaps = (tuple(map(of, labeled)) for of in (labeling.events_of, labeling.gaps_of))
    cut = chunks.cut(speech, max_chunk_seconds, audio, skipped, events, gaps=gaps)
    if audio.duration < LEAST_SECONDS:
        cut = ()
        warnings += (f"The recording is {audio.duration:.2f} s long: too short for a word; nothing is recognized.",)
    labels = keypad_digits.without_digits(labeled, keep_digits)
    return AudioAnalysis(loaded.layout, audio.duration, speech, cut, warnings, labels)
