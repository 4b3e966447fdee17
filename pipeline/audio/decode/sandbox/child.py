"""The program of the decoding process: a file on its standard input, messages (`wire`) on its standard output.

python -I -m pipeline.audio.decode.sandbox.child ORDER
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy; no thread may start later

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import av
import av.subtitles.codeccontext  # PyAV imports these lazily for such a track, when no file can be opened
import av.subtitles.stream
import numpy as np
import soxr

from pipeline.audio.decode import edits, mp4, start_time, wav
from pipeline.audio.decode.collect import Collector, Floats
from pipeline.audio.decode.container import FileReader, NotDecoded, Progress, blocks, open_container
from pipeline.audio.decode.sandbox import jail
from pipeline.audio.decode.sandbox.wire import HEADER, Facts, Kind, Order, RefusalReason, refusal

INPUT, OUTPUT = 0, 1
NICENESS = 5  # a quarter of a processor next to an engine, which serves all calls
DECLARES_LENGTH = ("flac", "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")  # the others estimate it
OTHER_FORMS = (b"RIFF", b"OggS", b"fLaC", b"ID3", b"#!AMR", b"\x1aE\xdf\xa3")  # certainly not MP4
LOWEST_RATE, HIGHEST_RATE = 4000, 384_000  # Hz
PARTIES = 2  # all tracks of a file may have this many times the longest recording
MAX_CHANNELS = 8  # sent to the parent
PIECE = 1 << 18  # samples per message


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    os.nice(NICENESS)
    _warm_up()
    _send(Kind.READY, json.dumps(jail.enter(order.memory_bytes, order.cpu_seconds)).encode())
    try:
        facts = _decode(order)
    except NotDecoded as refused:
        _send(Kind.REFUSED, refusal(refused.why, refused.number))
    except MemoryError:  # PyAV's as well
        _send(Kind.REFUSED, refusal(RefusalReason.MEMORY))
    else:
        _send(Kind.DONE, facts.data())


def _warm_up() -> None:
    """Use libraries that load parts lazily, while files can still be opened."""
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 16), np.int16), format="s16", layout="mono")
    frame.to_ndarray()
    soxr.ResampleStream(8000, 16000, 1, dtype="float32", quality="HQ").resample_chunk(np.zeros((16, 1), np.float32))


def _decode(order: Order) -> Facts:
    """Send the samples of each track at 16 kHz. Raises `NotDecoded`."""
    reader = FileReader(os.fdopen(INPUT, "rb", buffering=1 << 16))
    if not reader.head.startswith(OTHER_FORMS):
        patched = edits.Patched(reader, reader.size, _tables(reader).patches)
        if mp4.has_absurd_tables(patched, reader.size):
            raise NotDecoded(RefusalReason.TABLES)
    header = wav.read_header(reader, reader.size) if reader.head[:4] == b"RIFF" else None
    parts = _parts(reader, header)
    part, tables = _part(reader, parts, 0)
    with open_container(part, header, order.media_type) as container:
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise NotDecoded(RefusalReason.NO_CODEC)
        promised = None if parts and header is None else _promised(container, stream, header, reader.head, tables)
        if header is None and (promised or 0.0) * _samples_per_second(container) > order.max_samples:
            raise NotDecoded(RefusalReason.SAMPLES)
        progress = Progress()
        first = blocks(container, progress, reader, tables.timelines)
        sound = itertools.chain(first, _further_parts(reader, header, parts, progress))
        _send_samples(sound, order, progress)
        codec = stream.codec_context
        began = start_time.read(container, stream, wav.chunk_of(reader, reader.size, b"iXML", start_time.MAX_XML))
        return Facts(
            source_rate=codec.sample_rate,
            codec=codec.name,
            container=container.format.name,
            promised=promised,
            channels=list(progress.channels.values()),
            damaged=progress.damaged,
            broke_off=progress.broke_off,
            filled=progress.filled,
            gaps=progress.gaps,
            jumps=progress.jumps,
            channels_change=progress.channels_change,
            late_tracks=progress.late_tracks,
            started=began.seconds if began else None,
            started_within=began.within if began else 0.0,
            started_by=began.source if began else "",
        )


def _samples_per_second(container: Any) -> int:
    codecs = [stream.codec_context for stream in container.streams.audio if stream.codec_context is not None]
    return sum(codec.channels * codec.sample_rate for codec in codecs)


def _parts(reader: FileReader, header: wav.WavHeader | None) -> tuple[tuple[wav.Range, ...], ...]:
    """Return the bytes of each recording in a concatenated file; empty for a single one."""
    if header is not None:
        return header.parts if len(header.parts) > 1 else ()
    if reader.head.startswith(OTHER_FORMS):
        return ()
    return tuple((part,) for part in mp4.parts(reader, reader.size))


def _part(
    reader: FileReader, parts: tuple[tuple[wav.Range, ...], ...], index: int
) -> tuple[FileReader, edits.EditTables]:
    """Return a reader for one part, or for the whole file without parts, and its tables."""
    part = FileReader(wav.FileRanges(reader, parts[index])) if parts else reader
    tables = _tables(part)
    return (FileReader(edits.Patched(part, part.size, tables.patches)) if tables.patches else part), tables


def _tables(reader: FileReader) -> edits.EditTables:
    return edits.EditTables() if reader.head.startswith(OTHER_FORMS) else edits.read(reader, reader.size)


def _further_parts(
    reader: FileReader, header: wav.WavHeader | None, parts: tuple[tuple[wav.Range, ...], ...], progress: Progress
) -> Iterator[tuple[int, int, Floats]]:
    """Yield the sound of concatenated files and of further data chunks, which FFmpeg skips."""
    for index in range(1, len(parts)):
        part, tables = _part(reader, parts, index)
        try:
            with open_container(part, header, None) as container:
                yield from blocks(container, progress, part, tables.timelines)
        except NotDecoded as refused:
            if refused.why is RefusalReason.STORAGE:
                raise
            progress.damaged += 1
    progress.broke_off |= header is not None and header.more


def _send_samples(pieces: Iterator[tuple[int, int, Floats]], order: Order, progress: Progress) -> None:
    collectors: dict[int, Collector] = {}
    decoded, samples = 0.0, 0  # seconds and samples of all tracks: ignored ones cost as much
    for track, rate, block in pieces:
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise NotDecoded(RefusalReason.RATE, rate)
        if track not in progress.channels:
            room = MAX_CHANNELS - sum(progress.channels.values())
            progress.channels[track] = block.shape[1]
            if room > 0:
                collectors[track] = _collector(track, min(block.shape[1], room), rate)
        progress.channels_change |= block.shape[1] != progress.channels[track]
        decoded, samples = decoded + len(block) / rate, samples + block.size
        if samples > order.max_samples:
            raise NotDecoded(RefusalReason.SAMPLES)
        if track in collectors:
            collectors[track].add(block, rate)
        longest = max((collector.seconds for collector in collectors.values()), default=0.0)
        if longest > order.max_seconds or decoded > PARTIES * order.max_seconds:
            raise NotDecoded(RefusalReason.TOO_LONG)
    for track in sorted(collectors):
        collectors[track].finish()
    if not any(collector.length for collector in collectors.values()):
        raise NotDecoded(RefusalReason.NOTHING if progress.damaged or progress.broke_off else RefusalReason.EMPTY)


def _collector(track: int, channels: int, rate: int) -> Collector:
    _send(Kind.TRACK, bytes([channels]), track)

    def write(samples: Any) -> None:
        for first in range(0, len(samples), PIECE):
            _send(Kind.SAMPLES, np.ascontiguousarray(samples[first : first + PIECE], "<i2").data.cast("B"), track)

    return Collector(channels, rate, write)


def _promised(
    container: Any, stream: Any, header: wav.WavHeader | None, head: bytes, tables: edits.EditTables
) -> float | None:
    """Return the length in seconds that the file declares, or None."""
    if header is not None:
        return header.promised
    counted_mp3 = container.format.name == "mp3" and (b"Xing" in head or b"Info" in head)
    if container.format.name not in DECLARES_LENGTH and not counted_mp3:
        return None
    lacking = tables.lacking.get(stream.id, 0.0)
    if stream.id in tables.timelines:
        seconds = tables.timelines[stream.id].seconds
        return None if seconds is None else seconds + lacking
    if stream.duration:
        return max(0.0, float(stream.duration * stream.time_base)) + lacking
    return max(0.0, container.duration / 1e6) if container.duration else None


def _send(kind: Kind, data: "bytes | memoryview", track: int = 0) -> None:
    remaining = memoryview(HEADER.pack(kind, track, len(data)))
    while remaining:
        remaining = remaining[os.write(OUTPUT, remaining) :]
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(OUTPUT, remaining) :]


if __name__ == "__main__":
    main()
