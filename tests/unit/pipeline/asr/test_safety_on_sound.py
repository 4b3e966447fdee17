"""The safety net around real recognition: echoes, invented text, loops, and ordinary calls."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import butter, sosfilt

from pipeline.asr.plausible import loops
from pipeline.asr.safety import review, settle
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Chunk, Label, LabelKind
from tests.support.safety_by_hand import heard_as, said, words_of

pytestmark = pytest.mark.slow


def mixed(call, echo_db, delay=0.1):
    """Return a sample call with its first channel faintly mixed into the second."""
    late = np.concatenate([np.zeros(round(delay * SAMPLE_RATE)), call.samples[0]])[: call.samples.shape[1]]
    samples = np.stack([call.samples[0], call.samples[1] + late * 10 ** (echo_db / 20)])
    return AudioInMemory(np.clip(np.round(samples * 32767), -32768, 32767).astype(np.int16))


def recognised(transcriber, audio, chunks):
    return transcriber.transcribe([audio.sound(c) for c in chunks], chunks)


@pytest.fixture(scope="module")
def bleeding(sample_call, transcriber, chunks_of):
    """Return (audio, analysis, texts) of a call whose rep is audible at -10 dB in the customer's channel."""
    call = sample_call("01")
    audio = mixed(call, -10)
    both = sorted(call.speech("rep") + call.speech("customer"), key=lambda span: span.start)
    chunks = [
        replace(chunk, language="en")
        for chunk in (*chunks_of(call.speech("rep"), 0, audio.duration), *chunks_of(both, 1, audio.duration))
    ]
    speech = [[(s.start, s.end) for s in call.speech("rep")], [(s.start, s.end) for s in both]]
    return audio, heard_as(speech, audio.duration), recognised(transcriber, audio, chunks)


def netted(transcriber, audio, analysis, texts):
    """Run the whole safety net: review, decode again, settle."""
    suspects = review(audio, analysis, texts)
    chunks = [texts[suspect.index].chunk for suspect in suspects]
    samples = [audio.sound(c) for c in chunks]
    again = transcriber.transcribe(samples, chunks, with_fallback=True)
    return suspects, *settle(audio, analysis, texts, dict(zip([s.index for s in suspects], again, strict=True)))


def test_one_voice_in_both_channels_is_taken_out_of_the_fainter(bleeding, transcriber, sample_call, words_wrong):
    audio, analysis, texts = bleeding
    _, settled, doubts = netted(transcriber, audio, analysis, texts)
    rep, customer = ([t for t in settled if t.chunk.channel == channel] for channel in (0, 1))
    said_by_customer = sample_call("01").said("customer")
    assert words_wrong(said_by_customer, [t for t in texts if t.chunk.channel == 1]) > 1.5
    assert words_wrong(said_by_customer, customer) < 0.1
    assert words_of(rep) == words_of([t for t in texts if t.chunk.channel == 0])
    assert {(d.channel, d.kept) for d in doubts if "echo" in d.reasons} == {(1, False)}


def test_what_the_first_pass_dropped_beside_an_echo_is_found_when_decoded_again(bleeding, transcriber):
    """The first pass omits the end of "Hi, my name is Peter Miller." next to the loud echo of a long sentence."""
    audio, analysis, texts = bleeding
    _, settled, doubts = netted(transcriber, audio, analysis, texts)
    before, after = (" ".join(words_of(t for t in of if t.chunk.channel == 1)) for of in (texts, settled))
    assert "Miller" in after and "Miller" not in before
    assert not any("missing_speech" in doubt.reasons for doubt in doubts)


def test_a_customer_who_says_the_same_at_the_same_time_with_an_own_voice_keeps_it(sample_call, transcriber):
    """Combine the rep's sentence in one channel with another voice's sentence in the other, with equal text."""
    rep, other = sample_call("01"), sample_call("02")
    length = round(4.5 * SAMPLE_RATE)
    first = rep.samples[0, round(0.6 * SAMPLE_RATE) :][:length]
    second = 0.3 * other.samples[1, round(5.4 * SAMPLE_RATE) :][:length]
    audio = AudioInMemory((np.stack([first, second]) * 32767).astype(np.int16))
    sentence = "good morning this is Anna from Northwind Energy"
    texts = [said(sentence, 0.2, 4.2, channel) for channel in (0, 1)]
    settled, doubts = settle(audio, heard_as([[(0.0, 4.5)], [(0.0, 4.5)]], 4.5), texts, {})
    assert words_of([settled[1]]) == sentence.split()
    assert not any({"echo", "same_words"} & set(doubt.reasons) for doubt in doubts)


def test_a_customer_who_repeats_the_rep_later_keeps_it(sample_call, transcriber):
    """Even the very same sound: an echo comes at once, a repetition does not."""
    sentence = sample_call("01").samples[0, round(0.6 * SAMPLE_RATE) : round(5.2 * SAMPLE_RATE)]
    silence = np.zeros_like(sentence)
    rep = np.concatenate([sentence, silence])
    customer = 0.3 * np.concatenate([silence, sentence])
    audio = AudioInMemory((np.stack([rep, customer]) * 32767).astype(np.int16))
    texts = recognised(transcriber, audio, [Chunk(0, 0.0, 4.6, "en"), Chunk(1, 4.6, 9.2, "en")])
    settled, doubts = settle(audio, heard_as([[(0.0, 4.6)], [(4.6, 9.2)]], 9.2), texts, {})
    assert len(words_of([settled[1]])) >= 10
    assert words_of(settled) == words_of(texts) and doubts == ()


def test_identical_channels_are_marked_and_nobodys_words_are_taken(sample_call):
    call = sample_call("01")
    audio = AudioInMemory((np.vstack([call.samples[0]] * 2) * 32767).astype(np.int16))
    texts = [said("good morning this is Anna", 0.8, 2.6, channel) for channel in (0, 1)]
    settled, doubts = settle(audio, heard_as([[(0.6, 2.8)]] * 2, audio.duration), texts, {})
    assert words_of(settled) == words_of(texts)
    assert {d.channel for d in doubts if d.reasons == ("same_words",) and d.kept} == {0, 1}


def music(seed, seconds=8.0):
    """Chords of a few partials that change with the beat, in the telephone's band."""
    random = np.random.default_rng(seed)
    samples = np.zeros(round(seconds * SAMPLE_RATE))
    at = 0.0
    while at < seconds:
        lasting = min(60 / 110 * random.choice([0.5, 1, 1, 2]), seconds - at)
        t = np.arange(int(lasting * SAMPLE_RATE)) / SAMPLE_RATE
        root = random.choice([0, 2, 4, 5, 7, 9, 11])
        for step in (0, 4, 7)[: random.integers(1, 4)]:
            phase = 2 * np.pi * 220 * 2 ** ((root + step) / 12) * random.choice([1, 2]) * t
            phase = phase + 0.3 * np.sin(2 * np.pi * 5 * t)
            first = int(at * SAMPLE_RATE)
            tone = sum(np.sin(n * phase) / n for n in range(1, 7)) * np.minimum(1, t / 0.02) * np.exp(-1.5 * t)
            samples[first : first + len(t)] += tone
        at += lasting
    band = sosfilt(butter(4, [300, 3400], "bandpass", fs=SAMPLE_RATE, output="sos"), samples)
    return AudioInMemory((band / np.abs(band).max() * 10_000).astype(np.int16)[None])


def white_noise(seed, seconds=6.0):
    """To 8 kHz, which no telephone carries."""
    random = np.random.default_rng(seed)
    return AudioInMemory(random.normal(0, 3000, (1, round(seconds * SAMPLE_RATE))).astype(np.int16))


def as_one_window(transcriber, audio, kind):
    """Return (analysis, texts) of a recording that is all speech, or labeled as `kind`."""
    speech = [[(0.0, audio.duration)]] if kind is LabelKind.SPEECH else [[]]
    analysis = heard_as(speech, audio.duration, ((Label(0.0, audio.duration, kind),),))
    return analysis, recognised(transcriber, audio, [Chunk(0, 0.0, audio.duration)])


@pytest.mark.parametrize("make", [music, white_noise])
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_text_invented_on_what_is_no_speech_is_caught(make, seed, transcriber):
    audio = make(seed)
    analysis, texts = as_one_window(transcriber, audio, LabelKind.SPEECH)
    assert len(words_of(texts)) >= 3, "the synthetic checkpoint invents text here"
    suspects, settled, doubts = netted(transcriber, audio, analysis, texts)
    assert "improbable" in suspects[0].reasons
    assert all(word.doubtful for text in settled for word in text.words)
    assert any({"improbable", "unstable"} & set(doubt.reasons) and doubt.text for doubt in doubts)


@pytest.mark.parametrize("seed", range(4))
def test_text_invented_on_music_is_withheld_where_the_label_says_music(seed, transcriber):
    audio = music(seed)
    analysis, texts = as_one_window(transcriber, audio, LabelKind.MUSIC)
    assert words_of(texts)
    _, settled, doubts = netted(transcriber, audio, analysis, texts)
    assert words_of(settled) == []
    assert [doubt.kept for doubt in doubts] == [False] and "not_on_speech" in doubts[0].reasons


@pytest.mark.parametrize(("call", "channel", "start", "seconds"), [("06", 0, 7.577, 0.45), ("05", 0, 28.528, 0.25)])
def test_a_loop_is_caught(call, channel, start, seconds, sample_call, transcriber):
    """Repeat a syllable: the synthetic checkpoint repeats one word, some of it at -0.1."""
    syllable = sample_call(call).cut(channel, start, start + seconds)
    samples = np.tile(syllable, 40)[: 8 * SAMPLE_RATE]
    audio = AudioInMemory((samples * 32767).astype(np.int16)[None])
    language = sample_call(call).expected["language"]
    analysis = heard_as([[(0.0, 8.0)]], 8.0)
    texts = recognised(transcriber, audio, [Chunk(0, 0.0, 8.0, language)])
    suspects, settled, _ = netted(transcriber, audio, analysis, texts)
    assert {"loop", "compressible"} <= set(suspects[0].reasons)
    assert all(w.doubtful for w in settled[0].words) or loops(settled[0].words) == []


@pytest.fixture(scope="module")
def nine_calls(sample_call, transcriber, chunks_of):
    """Return audio, analysis and first pass of each sample call; its true speech is known."""
    calls = []
    for prefix in (f"0{n}" for n in range(1, 10)):
        call = sample_call(prefix)
        separated = call.expected["layout"] in ("stereo", "two_files")
        channels = 2 if separated else 1
        audio = AudioInMemory(np.clip(np.round(call.samples[:channels] * 32768), -32768, 32767).astype(np.int16))
        spans = [call.speech(role) for role in ("rep", "customer")]
        if not separated:
            spans = [tuple(sorted(spans[0] + spans[1], key=lambda span: span.start))]
        chunks = [
            replace(chunk, language=call.expected["language"])
            for channel, of_channel in enumerate(spans)
            for chunk in chunks_of(of_channel, channel, audio.duration)
        ]
        speech = [[(span.start, span.end) for span in of_channel] for of_channel in spans]
        analysis = heard_as(speech, audio.duration)
        calls.append((audio, analysis, recognised(transcriber, audio, chunks)))
    return calls


def test_ordinary_calls_lose_no_word(nine_calls, transcriber):
    windows = suspected = 0
    for audio, analysis, texts in nine_calls:
        suspects, settled, doubts = netted(transcriber, audio, analysis, texts)
        windows, suspected = windows + len(texts), suspected + len(suspects)
        assert all(doubt.kept for doubt in doubts)
        untouched = [i for i in range(len(texts)) if i not in {s.index for s in suspects}]
        assert words_of([settled[i] for i in untouched]) == words_of([texts[i] for i in untouched])
    print(f"{suspected} of {windows} windows suspect")
    assert suspected <= 0.05 * windows
