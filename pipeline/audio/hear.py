"""The audio stage on one screen: stored files -> channels -> speech -> chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio import channels, chunks
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import DecodeOptions, decode
from pipeline.domain.speech import Audio, Heard, Layout, Recording


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The sound of a call, and how its channels were told apart."""

    audio: Audio
    layout: Layout
    warnings: tuple[str, ...] = ()


def load(recordings: Sequence[Recording], decode_options: DecodeOptions, expected_files: int | None = None) -> Loaded:
    """Decode the one or two files of a call and separate its channels.

    `expected_files`: how many were submitted, if fewer could be had. Raises what `decode.decode` raises.
    """
    ordered = sorted(recordings, key=lambda recording: recording.channel)
    decoded = [decode(recording, decode_options) for recording in ordered]
    if len(ordered) == 1 and ordered[0].channel == 1:
        expected_files = 2  # the second file alone: the first could not be had
    audio, layout = channels.separate(decoded, expected_files)
    named = [
        f"File {recording.channel + 1}: {warning}" if len(ordered) > 1 else warning
        for recording, one in zip(ordered, decoded, strict=True)
        for warning in one.warnings
    ]
    return Loaded(audio, layout, tuple(named))


def examine(loaded: Loaded, speech_options: SpeechOptions, max_chunk_seconds: float) -> Heard:
    """Find speech in each channel and cut it into chunks of at most `max_chunk_seconds`."""
    speech = chunks.find_speech(loaded.audio, speech_options)
    cut = chunks.cut(speech, max_chunk_seconds, loaded.audio)
    return Heard(loaded.layout, loaded.audio.duration, speech, cut, loaded.warnings)
