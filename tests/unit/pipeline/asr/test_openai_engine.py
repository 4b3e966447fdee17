"""The engine that asks a server, against a real server on loopback with a real Whisper behind it."""

import io
import logging
import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from pydantic import ValidationError

from pipeline import asr
from pipeline.asr import alignment, openai_client
from pipeline.asr.alignment import AlignmentOptions
from pipeline.domain.speech import SAMPLE_RATE, Chunk, text_of
from pipeline.errors import EngineError, EngineUnavailable
from pipeline.net.endpoint import REVEAL
from pipeline.runtime import actors
from serve_app import settings as service_settings
from serve_app.cli.doctor import models as checks
from serve_app.cli.doctor.command import Level
from serve_app.settings import Settings
from tests.engine_cases import speech
from tests.transcription_server import KEY, MODEL, cut, drips, refuses, says, slow

SECONDS = 2.4


@pytest.fixture(scope="module")
def sound():
    """Real speech at 16 kHz."""
    return speech("1998-15444-0008")[: round(SECONDS * SAMPLE_RATE)]


@pytest.fixture(scope="module")
def chunk():
    return Chunk(0, 100.0, 100.0 + SECONDS)


@pytest.fixture(scope="session")
def aligner(tiny):
    return alignment.load(AlignmentOptions(model="tiny.en"))


@pytest.fixture
def engine_of(transcriptions, aligner):
    def make(**options):
        chosen = {"base_url": transcriptions.base_url, "model": MODEL, "timeout_seconds": 30.0} | options
        engine = asr.load(asr.AsrOptions(engine="openai", **chosen), None, AlignmentOptions(engine="off"))
        engine.aligner = aligner
        return engine

    return make


def test_what_is_sent_is_the_sound_the_model_the_language_and_nothing_that_was_not_set(
    engine_of, transcriptions, sound, chunk
):
    engine_of(api_key=KEY).transcribe([sound], [replace(chunk, language="en")], [("Hale",)])
    (asked,) = transcriptions.asked
    assert (asked["model"], asked["language"], asked["temperature"]) == (MODEL, "en", "0")
    assert (asked["response_format"], asked["timestamp_granularities[]"]) == ("verbose_json", ["word", "segment"])
    assert asked["filename"] == "chunk.flac"
    assert "prompt" not in asked


def test_the_server_gets_the_same_samples(sound):
    read, rate = soundfile.read(io.BytesIO(openai_client.encoded(sound)), dtype="float32")
    assert rate == SAMPLE_RATE
    assert len(read) == len(sound)
    assert np.abs(read - sound).max() < 1.01 / 32768


def test_names_are_sent_as_a_prompt_where_that_is_on(engine_of, transcriptions, sound, chunk):
    engine_of(vocabulary="on").transcribe([sound], [chunk], [("Margaret", "Mr. Hale", " margaret ")])
    assert transcriptions.asked[0]["prompt"] == "Margaret, Mr. Hale"


def test_word_times_of_the_server_are_taken_and_its_text_keeps_the_punctuation(engine_of, transcriptions, sound, chunk):
    engine = engine_of()
    engine.aligner = None
    (text,) = engine.transcribe([sound], [chunk])
    response = transcriptions.told[-1]
    assert text_of(text.words) == response["text"]
    assert any(not word.text.isalnum() for word in text.words)  # the list of words has no punctuation
    late = [word.start - 100 - entry["start"] for word, entry in zip(text.words, response["words"], strict=True)]
    assert np.median(np.abs(late)) < 0.1
    assert text.mean_log_probability == pytest.approx(response["segments"][0]["avg_logprob"])
    assert [word.confidence for word in text.words] == [round(entry["probability"], 4) for entry in response["words"]]


@pytest.mark.parametrize("detail", ["segments", "bare text"])
def test_words_without_times_get_them_from_the_aligner(detail, engine_of, transcriptions, sound, chunk, aligner):
    transcriptions.word_times = False
    transcriptions.takes = ("verbose_json", "json") if detail == "segments" else ("json",)
    engine = engine_of()
    (text,) = engine.transcribe([sound], [chunk])
    (again,) = engine.transcribe([sound], [chunk])
    (timed,) = aligner.align([sound], [replace(chunk, language="en")], [transcriptions.told[-1]["text"]])
    assert text.words == timed != ()
    assert again == text
    formats = [asked["response_format"] for asked in transcriptions.asked]
    assert formats == (
        ["verbose_json"] * 2 if detail == "segments" else ["verbose_json", "verbose_json", "json", "json"]
    )


def test_without_an_aligner_words_without_times_are_an_error_that_says_so(engine_of, transcriptions, sound, chunk):
    transcriptions.word_times = False
    engine = engine_of()
    engine.aligner = None
    with pytest.raises(EngineError, match="SWITCHBOARD_ALIGNMENT__ENGINE"):
        engine.transcribe([sound], [chunk])


def test_a_server_that_does_not_say_the_language_needs_it_to_be_set(engine_of, transcriptions, sound, chunk):
    transcriptions.takes, transcriptions.says_language = ("json",), False
    with pytest.raises(EngineError, match="SWITCHBOARD_ASR__LANGUAGE"):
        engine_of().transcribe([sound], [chunk])
    (text,) = engine_of(language="en").transcribe([sound], [chunk])
    assert text.words
    assert (text.language, text.language_detected) == ("en", False)


def test_no_more_requests_run_at_once_than_are_allowed(engine_of, transcriptions, sound, chunk):
    transcriptions.scripts = [slow(0.2, {"text": "", "language": "en"})] * 12
    engine = engine_of(concurrency=3)
    threads = [threading.Thread(target=engine.transcribe, args=([sound] * 4, [chunk] * 4)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(transcriptions.asked) == 12
    assert transcriptions.most_at_once == 3


@pytest.mark.parametrize(
    "busy",
    [refuses(429, "rate_limit_exceeded", retry_after="1"), refuses(503), refuses(500), cut],
    ids=["429", "503", "500", "cut"],
)
def test_what_may_pass_is_asked_for_again(busy, engine_of, transcriptions, sound, chunk):
    transcriptions.scripts = [busy]
    began = time.monotonic()
    (text,) = engine_of().transcribe([sound], [chunk])
    assert text.words
    assert len(transcriptions.asked) == 2
    assert time.monotonic() - began > 0.5


def test_as_long_as_the_server_says_to_wait_it_is_not_asked(engine_of, transcriptions, sound, chunk):
    transcriptions.scripts = [refuses(429, retry_after="1")]
    began = time.monotonic()
    engine_of().transcribe([sound], [chunk])
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("scripts", "error", "told"),
    [
        ([refuses(429, "insufficient_quota", retry_after="3600")], EngineUnavailable, "returns 429"),
        ([refuses(401, "invalid_api_key")], EngineUnavailable, r"returns 401 \(invalid_api_key\)"),
        ([refuses(307, location="http://127.0.0.1:1/")], EngineUnavailable, "returns 307"),
        ([refuses(500)] * 2, EngineError, "returns 500"),
        ([refuses(413)], EngineError, r"rejects this sound \(413"),
        ([cut, cut], EngineError, "broke the connection"),
        ([says(["text"])], EngineError, "not a transcription"),
        (
            [says({"text": "a b", "words": [{"word": "a", "start": "x", "end": 1}]})],
            EngineError,
            "invalid times or values",
        ),
        (
            [says({"text": "a", "words": [{"word": "a", "start": 0, "end": 9e9}]})],
            EngineError,
            "invalid times or values",
        ),
        ([says({"text": "a", "language": "en", "segments": [{"start": 0}]})], EngineError, "invalid times or values"),
    ],
)
def test_what_does_not_pass_is_an_error_of_its_kind_without_key_or_address(
    scripts, error, told, engine_of, transcriptions, sound, chunk, caplog
):
    caplog.set_level(logging.DEBUG)
    transcriptions.scripts = list(scripts)
    with pytest.raises(EngineError, match=told) as raised:
        engine_of(api_key=KEY).transcribe([sound], [chunk])
    assert type(raised.value) is error
    assert len(transcriptions.asked) == len(scripts)
    assert "127.0.0.1" not in raised.value.message
    assert KEY not in raised.value.message + caplog.text


def test_a_garbled_answer_is_an_error(engine_of, transcriptions, sound, chunk):
    from starlette.responses import Response

    transcriptions.scripts = [lambda: Response(b"<html>\xff", media_type="text/html")]
    with pytest.raises(EngineError, match="not a transcription"):
        engine_of().transcribe([sound], [chunk])


def test_an_answer_without_end_is_not_waited_for(engine_of, transcriptions, sound, chunk):
    transcriptions.scripts = [drips]
    began = time.monotonic()
    with pytest.raises(EngineError, match="did not respond within 1 s"):
        engine_of(timeout_seconds=1.0).transcribe([sound], [chunk])
    assert time.monotonic() - began < 30


def test_a_server_that_is_away_is_said_to_be_and_not_asked_again_at_once(engine_of, sound, chunk):
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))  # without listening
        engine = engine_of(base_url=f"http://127.0.0.1:{place.getsockname()[1]}/v1")
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            engine.transcribe([sound], [chunk])
        place.listen()
        place.setblocking(False)
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            engine.transcribe([sound] * 4, [chunk] * 4)
        with pytest.raises(BlockingIOError):  # no connection arrived
            place.accept()


def test_decoding_again_asks_in_other_ways_and_gives_the_same_each_time(engine_of, transcriptions, sound, chunk):
    engine = engine_of(vocabulary="on")
    asked = replace(chunk, language="en")
    (first,) = engine.transcribe([sound], [asked], [("Margaret",)], with_fallback=True)
    count = len(transcriptions.asked)
    (second,) = engine.transcribe([sound], [asked], [("Margaret",)], with_fallback=True)
    assert first == second
    assert first.with_fallback and first.words
    assert first.decodings == count > 1
    assert "prompt" not in transcriptions.asked[0]


def test_it_needs_an_address_and_a_model_and_takes_no_key_in_the_address():
    with pytest.raises(ValidationError, match="needs base_url"):
        asr.AsrOptions(engine="openai")
    with pytest.raises(ValidationError, match="needs model"):
        asr.AsrOptions(engine="openai", base_url="http://127.0.0.1/v1")
    with pytest.raises(ValidationError, match="must not contain a user, password or query"):
        asr.AsrOptions(engine="openai", base_url="http://a:b@127.0.0.1/v1", model="m")


@pytest.fixture
def chosen(transcriptions, monkeypatch):
    monkeypatch.setenv("SWITCHBOARD_ASR__ENGINE", "openai")
    monkeypatch.setenv("SWITCHBOARD_ASR__BASE_URL", transcriptions.base_url)
    monkeypatch.setenv("SWITCHBOARD_ASR__MODEL", MODEL)
    monkeypatch.setenv("SWITCHBOARD_ASR__API_KEY", KEY)


def test_the_key_is_in_no_settings_that_are_shown_and_replicas_get_it_from_their_node(chosen, monkeypatch):
    settings = Settings()
    assert KEY not in repr(settings) + str(settings.asr) + settings.model_dump_json()
    arguments = settings.asr.model_dump(mode="json", exclude=set(settings.asr.secrets()))
    assert "api_key" not in arguments
    assert settings.model_dump(mode="json", context={REVEAL: True})["asr"]["api_key"] == KEY
    assert service_settings.asr_secrets() == {"api_key": KEY}
    replica = actors.TranscriberReplica(arguments, None, {"engine": "off"}, secrets="serve_app.settings:asr_secrets")
    assert replica._engine._client._key.get_secret_value() == KEY


def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(chosen, monkeypatch):
    monkeypatch.setenv("SWITCHBOARD_ASR__API_KEY", f"{KEY} {KEY}")
    with pytest.raises(ValidationError, match="printable ASCII") as raised:
        Settings()
    assert KEY not in str(raised.value)


def test_doctor_asks_the_server(chosen):
    found_checks = {check.name: check for check in checks.checkpoints(Settings())}
    model = found_checks["recognition model"]
    assert (model.level, model.found) == (Level.GOOD, f"{MODEL} at 127.0.0.1")
    assert found_checks["alignment model"].level in (Level.GOOD, Level.WARN)


def test_what_is_wrong_with_the_server_is_told_with_what_to_do(chosen, transcriptions, monkeypatch):
    def told():
        with pytest.raises(EngineUnavailable) as raised:
            Settings().asr.engine_class.probe(Settings().asr.for_engine())
        assert KEY not in raised.value.message
        return raised.value.message

    transcriptions.key = "another"
    assert told() == "127.0.0.1 returns 401 to this key. Set SWITCHBOARD_ASR__API_KEY."
    transcriptions.key = None
    monkeypatch.setenv("SWITCHBOARD_ASR__MODEL", "large")
    assert f"does not list the model large (listed: {MODEL}). Set SWITCHBOARD_ASR__MODEL" in told()
    monkeypatch.setenv("SWITCHBOARD_ASR__BASE_URL", "http://127.0.0.1:9/v1")
    assert "does not respond (ConnectError). Start the server" in told()
