from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.domain.speech import Diarization, Span, SpeakerSpan, Voiceprint
from pipeline.speakers.reclustering import reclustered, with_margin
from pipeline.speakers.second_look import spoken_pieces
from tests.unit.pipeline.speakers.test_machines import said

LEAST = 0.45


def voice(angle: float) -> Voiceprint:
    """Return a unit vector in a plane, `angle` in degrees."""
    return Voiceprint((float(np.cos(np.radians(angle))), float(np.sin(np.radians(angle)))), "by hand", 2.0)


def speakers(
    parts: Sequence[tuple[float, float | None]], diarized: str | None = None, spans: Sequence[SpeakerSpan] = ()
) -> tuple[str, Diarization]:
    """Return the speakers of pieces, given as (seconds, angle of the voice), a second apart, and the diarization."""
    pieces, at = [], 0.0
    for seconds, _ in parts:
        pieces.append(Span(at, at + seconds))
        at += seconds + 1
    if diarized:
        spans = [SpeakerSpan(piece.start, piece.end, label) for piece, label in zip(pieces, diarized, strict=True)]
    wide = with_margin(pieces)
    prints = [None if angle is None else voice(angle) for (seconds, angle) in parts if seconds >= 0.1]
    assert len(prints) == len(wide)
    result = reclustered(Diarization(tuple(spans), {}, "by hand"), pieces, prints, LEAST)
    assert [Span(span.start, span.end) for span in result.spans] == pieces
    return "".join(span.speaker for span in result.spans), result


def test_two_voices_that_the_diarizer_took_for_one_are_two() -> None:
    labels, diarization = speakers([(3, 0), (3, 80), (2, 10), (2, 70)], "AAAA")
    assert labels == "ABAB"
    assert {label: voiceprint.speech_seconds for label, voiceprint in diarization.voiceprints.items()} == {
        "A": 5,
        "B": 5,
    }
    assert np.dot(diarization.voiceprints["A"].vector, voice(4).vector) > 0.99
    assert diarization.voiceprints["A"].model == "by hand"


def test_a_voice_that_the_diarizer_took_for_two_is_one() -> None:
    assert speakers([(3, 0), (3, 20), (2, 10)], "ABA")[0] == "AAA"


def test_two_similar_voices_of_the_diarizer_are_one_only_if_they_are_nearly_alike() -> None:
    assert speakers([(3, 0), (3, 50), (3, 10), (3, 40)], "ABAB")[0] == "ABAB"
    assert speakers([(3, 0), (3, 20), (3, 10), (3, 15)], "ABAB")[0] == "AAAA"
    assert speakers([(3, 0), (3, 50), (3, 10)], "ABA")[0] == "AAA", "too little of the second to tell"
    talk: list[tuple[float, float | None]] = [(3, 0), (3, 0), (5, 80), (4, 80)]
    assert speakers(talk, "AAAB")[0] == "AABB", "two voices remain, both mostly the diarizer's first"


def test_a_cluster_of_few_seconds_is_a_voice_only_if_it_is_unlike_all_others() -> None:
    assert speakers([(5, 0), (2, 70), (4, 10)], "AAA")[0] == "AAA"
    assert speakers([(5, 0), (2, 100), (4, 10)], "AAA")[0] == "ABA"


def test_a_cluster_of_few_seconds_is_a_voice_if_the_diarizer_hears_a_voice_of_its_own_in_it() -> None:
    assert speakers([(5, 0), (2, 70), (4, 10)], "ABA")[0] == "ABA"
    assert speakers([(5, 0), (2, 70), (4, 10), (2, -70)], "ABAA")[0] == "ABAA", "the last has no separate label"


def test_short_pieces_count_for_a_voiceprint_too() -> None:
    voiceprints = speakers([(4, 0), (2, 100), (1.2, 110), (4, 10)], "ABBA")[1].voiceprints
    assert {label: voiceprint.speech_seconds for label, voiceprint in voiceprints.items()} == {"A": 8, "B": 3.2}
    assert np.dot(voiceprints["B"].vector, voice(103.6).vector) > 0.999, "each by its seconds"
    assert "B" not in speakers([(4, 0), (2, 100), (0.9, 110), (4, 10)], "ABBA")[1].voiceprints, "less than 3 s"


def test_a_speaker_whose_pieces_are_not_like_one_voice_has_no_voiceprint() -> None:
    labels, diarization = speakers([(2.5, 0), (1.2, 110), (1.2, 115)], "AAA")
    assert (labels, diarization.voiceprints) == ("AAA", {})
    assert speakers([(2.5, 0), (1.2, 40), (1.2, 45)], "AAA")[1].voiceprints["A"].speech_seconds == 4.9


def test_a_short_piece_founds_no_voice_and_is_the_nearest_ones() -> None:
    talk = [(5.0, 0.0), (5.0, 90.0)]
    assert speakers([*talk, (0.8, 20)], "ABB")[0] == "ABA"
    assert speakers([*talk, (0.8, 200)], "AAA")[0] == "ABB"


def test_a_piece_too_short_to_embed_is_the_diarizers_or_its_neighbors() -> None:
    talk = [(5.0, 0.0), (5.0, 90.0)]
    assert speakers([*talk, (0.05, 0)], "ABA")[0] == "ABA"
    assert speakers([*talk, (0.05, 0)], "AAA")[0] == "ABB", "a diarizer with one voice has no label for it"


def test_a_short_word_between_pauses_is_the_voices_that_says_it() -> None:
    talk = [(5.0, 0.0), (5.0, 90.0)]
    assert speakers([*talk, (0.3, 5)], "ABB")[0] == "ABA"
    assert speakers([*talk, (0.3, 85)], "ABA")[0] == "ABB"


def test_margins_of_a_short_word_end_where_another_piece_begins() -> None:
    assert with_margin([Span(0, 2), Span(2.1, 2.4), Span(2.4, 3)]) == [Span(0, 2.1), Span(2.3, 3.1)]
    [first, word, last] = with_margin([Span(0, 2), Span(2.3, 2.6), Span(4, 5)])
    assert (first, last) == (Span(0, 2.1), Span(3.9, 5.1))
    assert word.start == pytest.approx(2.05) and word.end == pytest.approx(2.85)


def test_a_voice_of_the_diarizer_is_dissolved_only_by_enough_that_can_be_judged() -> None:
    short, long = (1.2, 40.0), (2.5, 20.0)
    talk: list[tuple[float, float | None]] = [(5.0, 0.0), (1.6, 30.0), short, short, short, (4.0, 5.0)]
    assert speakers(talk, "ABBBBA")[0] == "ABBBBA", "5.2 s of another, 1.6 s of them to judge by: the diarizer's word"
    assert speakers([*talk, long], "ABBBBAB")[0] == "AAAAAAA"
    assert speakers([(5.0, 0.0), short, (4.0, 5.0)], "ABA")[0] == "AAA", "next to nothing was said by another"


def test_a_voice_of_the_diarizer_that_is_unlike_all_others_is_not_dissolved_however_short_its_pieces() -> None:
    def talk(angle: float) -> list[tuple[float, float | None]]:
        return [(5.0, 0.0), (1.2, angle), (1.2, angle + 5), (4.0, 5.0)]

    assert speakers(talk(75), "ABBA")[0] == "ABBA"
    assert speakers(talk(30), "ABBA")[0] == "AAAA"


def test_without_a_piece_to_cluster_the_diarization_stays() -> None:
    spans = (SpeakerSpan(0, 1, "A"),)
    before = Diarization(spans, {"A": voice(0)}, "by hand")
    assert reclustered(before, [Span(0, 1)], [voice(0)], LEAST) is before
    assert reclustered(before, [Span(0, 3)], [None], LEAST) is before
    assert reclustered(before, [], [], LEAST) is before


def test_words_are_cut_at_sentences_pauses_and_changes_of_the_diarizer() -> None:
    texts = [said("Is it you? Yes, speaking.", 0, 3)]
    whole = [piece.span for piece in spoken_pieces(texts, ())]
    assert len(whole) == 2
    cut = spoken_pieces(texts, [SpeakerSpan(0, whole[1].start + 0.5, "A"), SpeakerSpan(whole[1].start + 0.5, 3, "B")])
    assert len(cut) == 3
    assert with_margin([Span(0, 0.2), Span(1, 2)]) == [Span(0.9, 2.1)]
