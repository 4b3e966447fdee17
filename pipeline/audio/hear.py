"""The audio stage on one screen: stored files -> channels -> speech -> chunks."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio import channels, chunks, labels, sound, typed
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import Decoded, DecodeOptions, decode
from pipeline.domain.speech import Audio, Heard, Layout, Recording
from pipeline.errors import RecordingError, StorageError

LEAST_SECONDS = 0.5  # of a whole recording; of less, Whisper writes "you" or "Sorry" whatever it holds


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The sound of a call, and how its channels were told apart."""

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
) -> Loaded:
    """Decode the one or two files of a call and separate its channels.

    `expected_files`: how many were submitted, if fewer could be had. Of two files, one that is no audio is given up
    with a warning. `scratch`: an fsspec folder that keeps decoded sound until `discard`; left out, the samples stay in
    memory, which is for short calls. `name`: what this load's folder in it is to be called, if the caller must know
    beforehand (see `sound.new_name`). Raises what `decode.decode` raises for the only file, or for the first where
    neither can be used.
    """
    if scratch is None:
        return _load(recordings, decode_options, expected_files, None)
    sound.sweep(scratch)
    folder = sound.join(scratch, name or sound.new_name())
    try:
        return _load(recordings, decode_options, expected_files, folder)
    except BaseException:
        with contextlib.suppress(StorageError):  # what stopped the load matters more; the sweep comes by
            sound.discard(folder)
        raise


def discard(loaded: Loaded) -> None:
    """Remove the scratch files of a call that nobody listens to any longer. Raises `StorageError`."""
    if loaded.folder is not None:
        sound.discard(loaded.folder)


def _load(
    recordings: Sequence[Recording], decode_options: DecodeOptions, expected_files: int | None, folder: str | None
) -> Loaded:
    ordered = sorted(recordings, key=lambda recording: recording.channel)
    if len(ordered) == 2 or (ordered and ordered[0].channel == 1):
        expected_files = 2  # also where the second file is alone: the first could not be had
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
    audio, layout = channels.separate(decoded, usable[0] if expected_files == 2 and len(usable) == 1 else None)
    return Loaded(audio, layout, tuple(warnings), folder)


def examine(
    loaded: Loaded,
    speech_options: SpeechOptions,
    max_chunk_seconds: float,
    packing: bool = False,
    keep_digits: bool = False,
) -> Heard:
    """Label every second of each channel; cut what is speech into chunks of at most `max_chunk_seconds`.

    `packing`: whether pauses may be left out of a chunk, up to the longest that the options allow. `keep_digits`:
    whether labels say which keys were pressed, and not only how many; `typed` has the exceptions. A recording of less
    than `LEAST_SECONDS` has no chunks, and a warning.
    """
    audio = loaded.audio
    warnings = loaded.warnings
    labelled = labels.label(audio, speech_options)
    speech = tuple(labels.speech_of(channel) for channel in labelled)
    left_out = speech_options.longest_left_out if packing else 0.0
    events, gaps = (tuple(map(of, labelled)) for of in (labels.events_of, labels.gaps_of))
    cut = chunks.cut(speech, max_chunk_seconds, audio, left_out, events, gaps=gaps)
    if audio.duration < LEAST_SECONDS:
        cut = ()
        warnings += (f"The recording is {audio.duration:.2f} s long: too short to hold a word; nothing is recognized.",)
    kept = typed.without_digits(labelled, keep_digits)
    return Heard(loaded.layout, audio.duration, speech, cut, warnings, kept)
