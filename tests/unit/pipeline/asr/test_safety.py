"""The safety net: suspicions, what settles them, and that sound text is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.asr.plausible import copies, loops
from pipeline.asr.safety import REASONS, Suspect, review, settle, should_retry
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Chunk, ChunkText, Doubt, Label, LabelKind, Span, Word
from tests.support.safety_by_hand import SECONDS, heard_as, said, sounding, words_of


def one(text, speech=((0.0, 4.0),), stretches=((0, 0.0, 4.0),), **kwargs):
    """Return the only reasons against one window of one channel."""
    suspects = review(sounding(*stretches), heard_as([speech], **kwargs), [text])
    return suspects[0].reasons if suspects else ()


def test_every_reason_has_a_sentence():
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in REASONS.values())


def test_sound_text_is_not_suspect():
    assert one(said("I would like to order a mattress please", 0.0, 4.0)) == ()


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        ({"mean_log_probability": -1.2}, "improbable"),
        ({"compression": 3.0}, "compressible"),
        ({"no_speech_probability": 0.9}, "no_speech"),
    ],
)
def test_the_engines_own_figures(score, reason):
    assert one(said("I would like to order a mattress please", 0.0, 4.0, **score)) == (reason,)


def test_more_words_than_anybody_speaks():
    assert one(said(" ".join(f"word{i}" for i in range(40)), 0.0, 4.0)) == ("too_many_words",)


def test_one_word_for_many_seconds_of_speech():
    assert "too_few_words" in one(said("yes", 0.0, 4.0))


def test_a_loop():
    assert one(said("thank you thank you thank you thank you", 0.0, 4.0)) == ("loop",)


def test_a_loop_across_windows():
    audio = sounding((0, 0.0, 9.0))
    texts = [said("see you next week " * 1, i * 3.0, i * 3.0 + 2.9) for i in range(3)]
    suspects = review(audio, heard_as([[(0.0, 9.0)]]), texts)
    assert [(s.index, s.reasons) for s in suspects] == [(i, ("loop",)) for i in range(3)]


def test_a_listener_who_says_yes_now_and_then_is_no_loop():
    words = [Word(i * 4.0, i * 4.0 + 0.4, "yes", 0.9) for i in range(10)]
    assert loops(words) == []


def test_what_is_improbable_in_one_piece_is_not_hidden_by_the_others():
    pieces = (Span(0.0, 2.0), Span(6.0, 8.0))
    sure = said("good morning to you", 0.2, 1.8, chunk=Chunk(0, 0.0, 8.0, "en", pieces))
    unsure = tuple(replace(word, confidence=0.3) for word in said("thanks for watching", 6.2, 7.8).words)
    text = replace(sure, words=sure.words + unsure)
    analysis, audio = heard_as([[(0.0, 2.0), (6.0, 8.0)]]), sounding((0, 0.0, 2.0), (0, 6.0, 8.0))
    (suspect,) = review(audio, analysis, [text])
    assert suspect.reasons == ("improbable",)
    ((settled,), (doubt,)) = settle(audio, analysis, [text], {})
    assert [word.doubtful for word in settled.words] == [False] * 4 + [True] * 3
    assert (doubt.text, doubt.start, doubt.end) == ("thanks for watching", 6.2, 7.8)


@pytest.mark.parametrize(
    ("first", "no_speech", "taken"),
    [(0.01, 0.75, True), (0.001, 0.4, True), (0.6, 0.75, False), (0.03, 0.3, False), (0.0, 0.0, False)],
)
def test_words_that_a_recognizer_writes_where_it_hears_nothing_are_taken_out(first, no_speech, taken):
    """A no-speech probability of 0.0 means that the recognizer does not report it."""
    text = said("thank you", 0.0, 1.0, no_speech_probability=no_speech)
    text = replace(text, words=(replace(text.words[0], confidence=first), text.words[1]))
    (settled,), doubts = settle(sounding((0, 0.0, 1.0)), heard_as([[(0.0, 1.0)]]), [text], {})
    assert words_of([settled]) == ([] if taken else ["thank", "you"])
    assert [doubt.text for doubt in doubts if not doubt.kept] == (["thank you"] if taken else [])


def test_a_pause_that_was_left_out_misses_no_words():
    """The pause contains another voice or loud hum: it is in no piece and is not judged."""
    pieces = (Span(0.0, 2.0), Span(6.0, 8.0))
    words = said("good morning", 0.2, 1.8).words + said("good bye", 6.2, 7.8).words
    text = replace(said("", 0.0, 8.0, chunk=Chunk(0, 0.0, 8.0, "en", pieces)), words=words)
    assert not review(sounding((0, 0.0, 8.0)), heard_as([[(0.0, 2.0), (6.0, 8.0)]]), [text])


def test_a_telephone_number_with_three_equal_digits_is_no_loop():
    assert loops(said("five five five one two two two", 0.0, 4.0).words) == []


PASSAGE = "you have done quite rightly introducing such a person to us"


@pytest.mark.parametrize("squeezed", [0, 1])
def test_a_passage_that_is_written_twice_is_heard_once(squeezed):
    """Reproduce a text of tiny.en over music: one copy lasted 4 s, the other 0.2 s. The window is not decoded again:
    the rest is correct, and over babble a second text was worse.
    """
    first, second = ((0.0, 0.2), (0.2, 4.2)) if squeezed == 0 else ((0.0, 4.0), (4.0, 4.2))
    words = said(PASSAGE, *first).words + said(PASSAGE, *second).words + said("madam", 4.2, 4.8).words
    text = replace(said("", 0.0, 5.0, chunk=Chunk(0, 0.0, 5.0)), words=words)
    analysis, audio = heard_as([[(0.0, 5.0)]]), sounding((0, 0.0, 5.0))
    assert review(audio, analysis, [text]) == ()
    (settled,), (doubt,) = settle(audio, analysis, [text], {})
    assert words_of([settled]) == [*PASSAGE.split(), "madam"]
    assert max(word.end - word.start for word in settled.words[:-1]) > 0.2
    assert (doubt.text, doubt.kept, doubt.reasons) == (PASSAGE, False, ("loop",))


def test_a_passage_that_is_said_twice_stays():
    twice = said(f"{PASSAGE} {PASSAGE}", 0.0, 8.0)
    assert one(twice, speech=((0.0, 8.0),), stretches=((0, 0.0, 8.0),)) == ()


@pytest.mark.timeout(20)  # seconds; it takes one, and took 55 where every passage was compared
def test_an_engine_that_gives_words_no_time_is_answered_soon():
    assert copies([Word(0.0, 0.0, f"word{i % 3001}", 0.9) for i in range(20_000)]) == []


def test_speech_without_words():
    text = said("good morning", 0.0, 0.9, chunk=Chunk(0, 0.0, 4.0))
    suspects = review(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [text])
    assert suspects[0].reasons == ("missing_speech",)
    _, (doubt,) = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [text], {})
    assert doubt == Doubt(0, pytest.approx(1.1), 4.0, ("missing_speech",), "", True)


def test_a_short_turn_that_the_window_skipped_is_marked_and_not_decoded_again():
    """Half a second says "woe to thee"; between words it would be the end of a drawn-out one."""
    audio = sounding((0, 0.0, 4.0), (0, 5.0, 5.8), (0, 7.0, 9.0))
    words = said("he said to him", 0.0, 4.0).words + said("put this in", 7.0, 9.0).words
    text = replace(said("", 0.0, 9.0, chunk=Chunk(0, 0.0, 9.0)), words=words)
    analysis = heard_as([[(0.0, 4.0), (5.0, 5.8), (7.0, 9.0)]])
    assert review(audio, analysis, [text]) == ()
    (settled,), (doubt,) = settle(audio, analysis, [text], {})
    assert words_of([settled]) == words_of([text]) and not any(word.doubtful for word in settled.words)
    assert (doubt.start, doubt.end, doubt.reasons) == (5.0, 5.8, ("missing_speech",))


@pytest.mark.parametrize(("word", "reasons"), [("then", ("missing_speech",)), ("555-867-5309", ())])
def test_speech_beneath_a_word_that_lasts_too_long_has_no_words(word, reasons):
    """An aligner stretches a word over speech that the decoder skipped; a number spoken digit by digit does last."""
    text = said("and then we left", 0.0, 2.0, chunk=Chunk(0, 0.0, 6.0))
    words = (
        text.words[0],
        Word(0.5, 5.0, word, 0.9),
        *(replace(w, start=w.start + 4, end=w.end + 4) for w in text.words[2:]),
    )
    text = replace(text, words=words)
    audio, analysis = sounding((0, 0.0, 6.0)), heard_as([[(0.0, 6.0)]])
    assert tuple(suspect.reasons for suspect in review(audio, analysis, [text])) == ((reasons,) if reasons else ())
    _, doubts = settle(audio, analysis, [text], {})
    assert [(doubt.start, doubt.end, doubt.text) for doubt in doubts] == (
        [(pytest.approx(1.7), 4.8, "")] if reasons else []
    )


def test_a_cough_without_words_is_not_suspect():
    audio = sounding((0, 0.0, 4.0), (0, 6.0, 6.3))
    texts = [said("good morning this is Anna", 0.0, 4.0), said("", 6.0, 8.0)]
    assert review(audio, heard_as([[(0.0, 4.0), (6.0, 8.0)]]), texts) == ()


def test_words_far_from_speech_in_silence_are_taken_out_and_kept_in_a_doubt():
    text = said("hello there thanks for watching", 0.0, 8.0, chunk=Chunk(0, 0.0, 8.0))
    audio, analysis = sounding((0, 0.0, 3.0)), heard_as([[(0.0, 3.0)]])
    (settled,), doubts = settle(audio, analysis, [text], {})
    assert words_of([settled]) == ["hello", "there", "thanks"]
    assert [(d.text, d.kept, d.reasons) for d in doubts if not d.kept] == [("for watching", False, ("no_sound",))]


def test_words_on_hold_music_are_taken_out():
    labels = ((Label(0.0, 4.0, LabelKind.SPEECH), Label(4.0, SECONDS, LabelKind.MUSIC)),)
    text = said("one moment please we will help you", 0.0, 8.0, chunk=Chunk(0, 0.0, 8.0))
    analysis = heard_as([[(0.0, 4.0)]], labels=labels)
    (settled,), doubts = settle(sounding((0, 0.0, 8.0)), analysis, [text], {})
    assert words_of([settled]) == ["one", "moment", "please", "we"]
    assert [d.text for d in doubts if not d.kept] == ["will help you"]
    assert all(d.reasons == ("not_on_speech",) for d in doubts if not d.kept)


def test_a_word_that_lies_half_on_music_stays():
    labels = ((Label(0.0, 4.5, LabelKind.SPEECH), Label(4.5, SECONDS, LabelKind.MUSIC)),)
    text = said("on half late", 3.0, 6.0, chunk=Chunk(0, 0.0, 6.0))  # the second word ends half a second into the music
    analysis = heard_as([[(0.0, 3.0)]], labels=labels)
    _, doubts = settle(sounding((0, 0.0, 6.0)), analysis, [text], {})
    assert " ".join(d.text for d in doubts if "not_on_speech" in d.reasons) == "late"


def test_a_word_just_beside_its_speech_is_marked_and_stays():
    labels = ((Label(0.0, 2.0, LabelKind.SPEECH), Label(2.0, SECONDS, LabelKind.NOISE)),)
    text = said("bye", 2.1, 2.3, chunk=Chunk(0, 0.0, 2.5))
    (settled,), doubts = settle(sounding((0, 0.0, 2.5)), heard_as([[(0.0, 2.0)]], labels=labels), [text], {})
    assert settled.words[0].doubtful
    assert any(d.kept and d.text == "bye" and d.reasons == ("not_on_speech",) for d in doubts)


def test_repetitions_faster_than_speech_are_taken_out_but_for_the_first():
    text = said("thank you " * 20, 0.0, 2.0, chunk=Chunk(0, 0.0, 4.0))
    (settled,), doubts = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [text], {})
    assert words_of([settled]) == ["thank", "you"]
    assert any(not d.kept and len(d.text.split()) == 38 for d in doubts)


def test_the_second_decoding_is_taken_where_less_speaks_against_it():
    first = said("yes yes yes yes yes yes", 0.0, 4.0)
    second = said("the order is on its way", 0.0, 4.0, mean_log_probability=-0.6, with_fallback=True)
    texts, doubts = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert (words_of(texts), texts[0].with_fallback, doubts) == (words_of([second]), True, ())


def test_words_for_speech_without_any_are_taken_though_the_recognizer_is_less_sure_of_them():
    """The recognizer is more confident about a text that omits unclear speech."""
    chunk = Chunk(0, 0.0, 4.0, "en")
    first = said("good morning", 0.0, 0.9, chunk=chunk, mean_log_probability=-0.1)
    second = said("good morning my name is peter miller", 0.0, 4.0, chunk=chunk, mean_log_probability=-0.4)
    texts, doubts = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert (words_of(texts), doubts) == (words_of([second]), ())


@pytest.mark.parametrize(
    ("reasons", "words", "worth"),
    [
        (("missing_speech",), "good morning", False),
        (("improbable", "no_speech", "missing_speech"), "good morning", False),
        (("missing_speech",), "", True),
        (("improbable",), "good morning", True),
        (("loop", "missing_speech"), "good morning", True),
        (("too_few_words", "missing_speech"), "yes", True),
    ],
)
def test_a_window_is_worth_decoding_again_unless_it_only_lacks_words_beside_others(reasons, words, worth):
    assert should_retry(Suspect(0, reasons), said(words, 0.0, 1.0)) is worth
    assert should_retry(Suspect(0, reasons, lacks_loud_speech=True), said(words, 0.0, 1.0))


@pytest.mark.parametrize(("softer_db", "lacks_loud_speech"), [(0, True), (20, False)])
def test_speech_that_was_passed_over_is_as_loud_as_the_rest(softer_db, lacks_loud_speech):
    """Speech that is 20 dB softer is babble behind the voice: it is marked, and not decoded again."""
    loud, soft = sounding((0, 0.0, 4.0)), sounding((0, 4.0, 8.0), seed=2)
    scaled = loud.samples.astype(np.float64) + soft.samples * 10 ** (-softer_db / 20)
    audio, analysis = AudioInMemory(scaled.astype(np.int16)), heard_as([[(0.0, 8.0)]])
    text = said("good morning my name is peter", 0.0, 4.0, chunk=Chunk(0, 0.0, 8.0, "en"))
    (suspect,) = review(audio, analysis, [text])
    assert (suspect.reasons, suspect.lacks_loud_speech) == (("missing_speech",), lacks_loud_speech)
    assert should_retry(suspect, text) is lacks_loud_speech


def test_the_first_decoding_is_kept_where_the_second_is_worse():
    first = said("the order is on its way", 0.0, 4.0, mean_log_probability=-0.7)
    second = said("la la la la la la", 0.0, 4.0, mean_log_probability=-0.9, with_fallback=True)
    texts, (doubt,) = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert words_of(texts) == words_of([first]) and all(word.doubtful for word in texts[0].words)
    assert doubt.kept and doubt.reasons == ("improbable",) and doubt.text == "the order is on its way"


@pytest.mark.parametrize("language", ["en", "de"])
def test_improbable_words_are_not_lost_to_a_second_decoding_that_hears_none(language):
    first = said("the order is on its way", 0.0, 4.0, mean_log_probability=-0.9)
    silence = said("", 0.0, 4.0, mean_log_probability=0.0, with_fallback=True)
    again = {0: replace(silence, language=language)}
    texts, (doubt,) = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], again)
    assert words_of(texts) == words_of([first]) and all(word.doubtful for word in texts[0].words)
    assert (doubt.kept, doubt.text) == (True, "the order is on its way") and "improbable" in doubt.reasons


def test_words_that_a_second_decoding_does_not_hear_are_in_a_doubt_where_more_speaks_against_them():
    first = said("la la la la la la", 0.0, 4.0, mean_log_probability=-1.5)
    again = {0: said("", 0.0, 4.0, mean_log_probability=0.0, with_fallback=True)}
    (settled,), doubts = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], again)
    assert settled.words == ()
    (taken,) = (d for d in doubts if not d.kept)
    assert (taken.start, taken.end, taken.text) == (0.0, 4.0, "la la la la la la")
    assert taken.reasons == ("improbable", "loop")


def test_words_that_are_doubtful_far_apart_are_doubts_of_their_own():
    """Else a doubt about the first and the last word of a window would cover all that is sure between them."""
    text = said("one two three four five six", 0.0, 6.0)
    audio = sounding((0, 2.0, 4.0))
    (settled,), doubts = settle(audio, heard_as([[(0.0, 6.0)]]), [text], {})
    assert [word.text for word in settled.words if word.doubtful] == ["one", "six"]
    assert [(d.start, d.end, d.text) for d in doubts if d.text] == [(0.0, 1.0, "one"), (5.0, 6.0, "six")]


def test_a_window_decoded_in_another_language_takes_the_second():
    first = said("it is a good day for that", 0.0, 4.0, mean_log_probability=-0.3)
    second = replace(said("es ist ein guter Tag", 0.0, 4.0, mean_log_probability=-0.6), language="de")
    texts, _ = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert texts[0].language == "de"


def test_a_second_decoding_that_has_nothing_in_common_with_an_improbable_first_is_doubtful():
    first = said("la la laura higher claire", 0.0, 4.0, mean_log_probability=-0.9)
    second = said("we are open from monday", 0.0, 4.0, mean_log_probability=-0.5, with_fallback=True)
    texts, (doubt,) = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert words_of(texts) == words_of([second]) and all(word.doubtful for word in texts[0].words)
    assert doubt.kept and doubt.reasons == ("unstable",)


def test_a_second_decoding_that_agrees_with_the_first_is_believed():
    first = said("we are open from sunday", 0.0, 4.0, mean_log_probability=-0.9)
    second = said("we are open from monday", 0.0, 4.0, mean_log_probability=-0.5, with_fallback=True)
    texts, doubts = settle(sounding((0, 0.0, 4.0)), heard_as([[(0.0, 4.0)]]), [first], {0: second})
    assert (words_of(texts), doubts) == (words_of([second]), ())


def test_a_second_decoding_of_nothing_is_refused():
    with pytest.raises(ValueError, match="second texts"):
        settle(sounding(), heard_as([[]]), [], {3: said("yes", 0.0, 1.0)})


@pytest.mark.parametrize("samples", [0, 1])
def test_no_sound_at_all(samples):
    audio = AudioInMemory(np.zeros((1, samples), np.int16))
    assert review(audio, heard_as([[]], seconds=samples / SAMPLE_RATE), []) == ()
    assert settle(audio, heard_as([[]], seconds=samples / SAMPLE_RATE), [], {}) == ((), ())


def test_words_where_the_recording_has_ended_do_not_fail():
    audio = AudioInMemory(np.zeros((1, 1), np.int16))
    (settled,), (doubt,) = settle(audio, heard_as([[]]), [said("hello", 3.0, 4.0)], {})
    assert settled.words == () and doubt.text == "hello" and not doubt.kept


times = st.floats(-5, 20, allow_nan=False)
windows = st.tuples(
    st.integers(0, 1),
    st.floats(0, 1),
    st.floats(0.1, 4),
    st.lists(st.builds(Word, times, times, st.sampled_from(["yes", "no", "42"]), st.just(0.5)), max_size=12),
    st.floats(-2, 0),
    st.floats(0, 4),
)


def placed(drawn):
    """Windows as the audio stage cuts them: those of a channel follow each other without overlap."""
    ends, texts = [0.0, 0.0], []
    for channel, gap, length, words, log_probability, compression in drawn:
        chunk = Chunk(channel, ends[channel] + gap, ends[channel] + gap + length, "en")
        texts.append(ChunkText(chunk, "en", 1.0, tuple(words), log_probability, 0.1, compression=compression))
        ends[channel] = chunk.end
    return texts


@given(st.lists(windows, max_size=4), st.data())
def test_whatever_comes_in_word_times_are_sound_and_nothing_is_lost(drawn, data):
    texts = placed(drawn)
    audio = sounding((0, 1.0, 5.0), (1, 3.0, 9.0), channels=2)
    labels = ((Label(0.0, SECONDS, LabelKind.SPEECH),), (Label(0.0, SECONDS, LabelKind.MUSIC),))
    analysis = heard_as([[(1.0, 5.0)], [(3.0, 9.0)]], labels=labels)
    again = {i: replace(data.draw(st.sampled_from(texts)), chunk=texts[i].chunk) for i in range(0, len(texts), 2)}
    settled, doubts = settle(audio, analysis, texts, again)
    latest = {0: 0.0, 1: 0.0}
    for text, before in zip(settled, texts, strict=True):
        assert text.chunk == before.chunk
        for word in text.words:
            assert max(latest[text.chunk.channel], text.chunk.start) <= word.start < word.end <= text.chunk.end
            latest[text.chunk.channel] = word.end
    taken = sum(len(doubt.text.split()) for doubt in doubts if not doubt.kept)
    lengths = [sorted({len(t.words), len(again.get(i, t).words)}) for i, t in enumerate(texts)]
    assert sum(n[0] for n in lengths) <= taken + len(words_of(settled)) <= sum(n[-1] for n in lengths)
    assert all(set(doubt.reasons) <= set(REASONS) and doubt.reasons for doubt in doubts)
