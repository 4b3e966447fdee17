"""The audio stage on one screen: stored files -> channels -> speech -> chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio import channels, chunks
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import Decoded, DecodeOptions, decode
from pipeline.domain.speech import Audio, Heard, Layout, Recording
from pipeline.errors import RecordingError


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The sound of a call, and how its channels were told apart."""

    audio: Audio
    layout: Layout
    warnings: tuple[str, ...] = ()


def load(recordings: Sequence[Recording], decode_options: DecodeOptions, expected_files: int | None = None) -> Loaded:
    """Decode the one or two files of a call and separate its channels.

    `expected_files`: how many were submitted, if fewer could be had. Of two files, one that is no audio is given up
    with a warning. Raises what `decode.decode` raises for the only file, or for the first where neither can be used.
    """
    ordered = sorted(recordings, key=lambda recording: recording.channel)
    if len(ordered) == 2 or (ordered and ordered[0].channel == 1):
        expected_files = 2  # also where the second file is alone: the first could not be had
    decoded: list[Decoded] = []
    failures: list[RecordingError] = []
    warnings: list[str] = []
    for recording in ordered:
        prefix = f"File {recording.channel + 1}: " if expected_files == 2 else ""
        try:
            decoded.append(decode(recording, decode_options))
        except RecordingError as error:
            failures.append(error)
            warnings.append(f"{prefix}{error}")
        else:
            warnings += [f"{prefix}{warning}" for warning in decoded[-1].warnings]
    if not decoded:
        raise failures[0]
    audio, layout = channels.separate(decoded, expected_files)
    return Loaded(audio, layout, tuple(warnings))


def examine(loaded: Loaded, speech_options: SpeechOptions, max_chunk_seconds: float) -> Heard:
    """Find speech in each channel and cut it into chunks of at most `max_chunk_seconds`."""
    speech = chunks.find_speech(loaded.audio, speech_options)
    cut = chunks.cut(speech, max_chunk_seconds, loaded.audio)
    return Heard(loaded.layout, loaded.audio.duration, speech, cut, loaded.warnings)
