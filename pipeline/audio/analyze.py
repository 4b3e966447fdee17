import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.audio import chunks
from pipeline.audio.channels import separation
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import Decoded, decode
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels import keypad_digits, labeling
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.speech import Audio, AudioAnalysis, Layout, Recording
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import RecordingError, StorageError
from pipeline.record_texts import warning_text

MIN_SECONDS = 0.5  # of a whole recording; for less, Whisper returns "you" or "Sorry" whatever the sound
MAX_SKIPPED_PAUSE = 30.0  # seconds; the longest pause that a chunk may skip


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The sound of a call and how its channels were separated."""

    audio: Audio
    layout: Layout
    warnings: tuple[str, ...] = ()
    folder: str | None = None  # of its scratch files; None: the samples are in memory
    files: Mapping[int, Decoded] = field(default_factory=dict)  # as decoded, by `Recording.channel`


def load(
    recordings: Sequence[Recording],
    decode_options: DecodeOptions,
    expected_files: int | None = None,
    scratch: str | None = None,
    name: str | None = None,
    swapped: bool = False,
) -> Loaded:
    """Decode the one or two files of a call and separate its channels.

    `expected_files`: how many were submitted, if fewer could be fetched. Of two files, one that is not audio is skipped
    with a warning. `scratch`: an fsspec folder that stores decoded sound until `sound.discard`; without it the samples
    stay in memory, which suits short calls only. `name`: this load's folder in `scratch`, if the caller needs the name
    in advance (see `sound.new_name`). `swapped`: the customer is on the first channel or in the first file. Raises the
    errors of `decoder.decode` for the first file if no file can be decoded.
    """
    if scratch is None:
        return _load(recordings, decode_options, expected_files, None, swapped)
    sound.sweep(scratch)
    folder = sound.join(scratch, name or sound.new_name())
    try:
        return _load(recordings, decode_options, expected_files, folder, swapped)
    except BaseException:
        with contextlib.suppress(StorageError):  # the original error matters more; `sweep` removes the rest later
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
        expected_files = 2  # also if only the second file is here: the first could not be fetched
    decoded: list[Decoded] = []
    usable: list[int] = []  # the channels of the decoded files
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
    return Loaded(audio, layout, tuple(warnings), folder, dict(zip(usable, decoded, strict=True)))


def analyze_audio(
    loaded: Loaded,
    speech_options: SpeechOptions,
    max_chunk_seconds: float,
    packing: bool = False,
    keep_digits: bool = False,
) -> AudioAnalysis:
    """Label every second of each channel and cut speech into chunks of max. `max_chunk_seconds`.

    `packing`: whether a chunk may skip pauses up to `MAX_SKIPPED_PAUSE`. `keep_digits`: whether labels contain the
    pressed keys and not only their number; `keypad_digits` has the exceptions. A recording shorter than `MIN_SECONDS`
    has no chunks and a warning.
    """
    audio = loaded.audio
    warnings = loaded.warnings
    labeled = labeling.label(audio, speech_options)
    speech = tuple(labeling.speech_of(channel) for channel in labeled)
    skipped = MAX_SKIPPED_PAUSE if packing else 0.0
    events, gaps = (tuple(map(of, labeled)) for of in (labeling.events_of, labeling.gaps_of))
    cut = chunks.cut(speech, max_chunk_seconds, audio, skipped, events, gaps=gaps)
    if audio.duration < MIN_SECONDS:
        cut = ()
        warnings += (warning_text(CallWarning.RECORDING_TOO_SHORT, seconds=audio.duration),)
    labels = keypad_digits.without_digits(labeled, keep_digits)
    return AudioAnalysis(loaded.layout, audio.duration, speech, cut, warnings, labels)
