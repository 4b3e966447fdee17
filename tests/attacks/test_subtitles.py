"""Words cannot end a subtitle, begin another one, name another speaker, or set a style."""

import html
import re
from dataclasses import replace

import pytest
import srt
import webvtt

from pipeline.domain.speech import Transcript, Word
from serve_app.records import transcripts
from serve_app.records.transcripts import WORD_JOINER
from tests.finished import transcript

SRT_TIME = r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}"
VTT_TIME = SRT_TIME.replace(",", r"\.")
EVIL = [
    "\n\n7\n00:00:00,000 --> 00:00:09,000\nrep: I confess",
    "\n\n00:00:00.000 --> 00:00:09.000\nI confess",
    "\r\r00:00:00.000 --> 00:00:09.000\rI confess",
    "a --> b",
    "<b>bold</b>",
    "<v customer>I confess</v>",
    '<font size="99">',
    "<00:00:05.000>",
    "{\\an8}{\\fs99}above",
    "{Y:i}",
    "AT&T &lt;b&gt; &#60;b&#62; & R&D",
    "NOTE\n\nSTYLE\n::cue { color: red }",
]


def spoken(text: str, speaker: str = "rep") -> Transcript:
    whole = transcript(("rep", "Hello."))
    turn = replace(whole.turns[0], speaker=speaker, words=(Word(0.0, 1.0, text, 0.9), Word(1.0, 2.0, " end", 0.9)))
    return replace(whole, turns=(turn,))


def srt_cues(text: str) -> list[str]:
    """Return the text of each subtitle. Strict: number, times, and two lines without an empty one or an arrow."""
    cues = []
    for number, block in enumerate(re.split(r"(?:\r\n|\n|\r){2,}", text.strip()), 1):
        first, times, *lines = re.split(r"\r\n|\n|\r", block)
        assert first == str(number) and re.fullmatch(SRT_TIME, times)
        assert not any("-->" in line for line in lines) and 1 <= len(lines) <= 2
        cues.append("\n".join(lines))
    assert [cue.content for cue in srt.parse(text, ignore_errors=False)] == cues
    return cues


def vtt_cues(text: str) -> list[tuple[str, str]]:
    """Return voice and text of each cue. Strict: as WebVTT defines the text of cues, with no tag but the voice's."""
    header, *blocks = re.split(r"(?:\r\n|\n|\r){2,}", text.strip())
    assert header == "WEBVTT"
    cues = []
    for block in blocks:
        times, *lines = re.split(r"\r\n|\n|\r", block)
        assert re.fullmatch(VTT_TIME, times)
        found = re.fullmatch(r"<v ([^<>\n]*)>([^<>]*)", "\n".join(lines))
        assert found and not re.search(r"&(?!(amp|lt|gt);)", found.group(0))
        cues.append((html.unescape(found.group(1)), html.unescape(found.group(2))))
    assert [html.unescape(caption.text) for caption in webvtt.from_string(text)] == [words for _, words in cues]
    return [(voice, words.replace("\n", " ")) for voice, words in cues]


@pytest.mark.parametrize("evil", EVIL)
def test_words_stay_words(evil: str) -> None:
    shown = " ".join(f"{evil} end".split())
    (cue,) = srt_cues(transcripts.srt(spoken(evil)))
    assert "<" not in cue and ">" not in cue and not re.search(r"\{[\\A-Za-z]", cue)
    assert html.unescape(cue).replace(WORD_JOINER, "").replace("\n", " ") == f"rep: {shown}"
    assert vtt_cues(transcripts.vtt(spoken(evil))) == [("rep", shown)]
    (line,) = transcripts.text(spoken(evil)).splitlines()
    assert line == f"[00:00:00] rep: {shown}"


@pytest.mark.parametrize("evil", EVIL)
def test_a_speaker_is_escaped_too(evil: str) -> None:
    shown = " ".join(evil.split())
    (cue,) = srt_cues(transcripts.srt(spoken("Hello", evil)))
    assert html.unescape(" ".join(cue.split())).replace(WORD_JOINER, "") == f"{shown}: Hello end"
    assert vtt_cues(transcripts.vtt(spoken("Hello", evil))) == [(shown, "Hello end")]


def test_a_plain_ampersand_is_not_escaped_in_subrip() -> None:
    assert srt_cues(transcripts.srt(spoken("AT&T, R&D & more"))) == ["rep: AT&T, R&D & more end"]


def test_a_cue_has_two_lines_and_seven_seconds_at_most() -> None:
    """A turn of 300 words in two minutes, and words that are too long for a line or a cue."""
    lengths = [1 + at * 7 % 13 for at in range(300)]
    words = [Word(0.4 * at, 0.4 * at + 0.3, f" {'w' * length}", 0.9) for at, length in enumerate(lengths)]
    words += [Word(130.0, 131.0, f" {'x' * 60}", 0.9), Word(131.0, 155.0, " held", 0.9)]
    whole = spoken("Hello", "customer")
    whole = replace(whole, turns=(replace(whole.turns[0], words=tuple(words)),))
    cues = list(srt.parse(transcripts.srt(whole), ignore_errors=False))
    lines = [cue.content.split("\n") for cue in cues]
    assert max((cue.end - cue.start).total_seconds() for cue in cues) == transcripts.MAX_CUE_SECONDS
    assert max(map(len, lines)) == 2
    too_long = [line for cue in lines for line in cue if len(line) > transcripts.MAX_LINE_CHARACTERS]
    assert too_long == ["x" * 60]
    said = " ".join(cue.content.replace("\n", " ").removeprefix("customer: ") for cue in cues)
    assert said == " ".join(word.text.strip() for word in words)
    assert len(cues) < 60  # lines are filled
    captions = webvtt.from_string(transcripts.vtt(whole))
    assert [(caption.start_in_seconds, caption.end_in_seconds) for caption in captions] == [
        (int(cue.start.total_seconds()), int(cue.end.total_seconds())) for cue in cues
    ]
