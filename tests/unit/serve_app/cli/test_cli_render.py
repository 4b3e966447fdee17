import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from rich.console import Console

from db.core.rows import dump_json
from db.records.job_views import Failure, JobSummary
from db.records.views import CallMoment, CallRecord, CallSummary
from pipeline.analysis import analyze
from pipeline.asr.safety import REASONS
from pipeline.domain.call import CallState
from pipeline.domain.insight import Contact, Finding
from pipeline.domain.speech import Bleed, Doubt, Label, LabelKind, LanguageStretch, Role, Speaker, Transcript, Word
from serve_app.cli.calls.jobs import about
from serve_app.cli.render.call import render_call, render_outcome, speaker_styles
from serve_app.cli.render.findings import PARTY_FIGURES, render_finding
from serve_app.cli.ui.output import plain
from serve_app.records import transcripts as export
from serve_app.records.transcripts import clock
from tests.support.calls_by_hand import CALL, START, call, timeline

NOW = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
MATERIAL = call(
    ("rep", "Hello, this is Anna from Metro Cable, how can I help you?"),
    ("customer", "My internet is terrible, I am very angry."),
    ("rep", "I am sorry. I will send you a new router tomorrow."),
    ("customer", "Thank you, that is wonderful."),
)


def record(state: CallState = CallState.COMPLETED, **changes: object) -> CallRecord:
    summary = CallSummary(
        call_id=CALL,
        workspace_id=UUID(int=1),
        team_id=UUID(int=2),
        user_id=None,
        from_number="+12025550143",
        to_number="+12025550100",
        start_time=START,
        outgoing=False,
        duration=14.0,
        declared_duration=14,
        state=state,
        stage=None,
        attempts=1,
        next_try=None,
        failure=None,
        language="en",
        created_at=NOW,
        updated_at=NOW,
        completed_at=NOW,
    )
    call = CallRecord(
        call=summary,
        job_id=UUID(int=3),
        from_e164="+12025550143",
        to_e164="+12025550100",
        recording_url="https://pbx.example/1.wav",
        recording_url2=None,
        layout=MATERIAL.transcript.layout,
        transcript=MATERIAL.transcript,
        findings=analyze(MATERIAL),
        tasks=(),
        contacts=(Contact("c1", "Peter Miller"),),
        recordings=(),
        warnings=("The file has 4 channels; the first two count.",),
        submissions=2,
        jobs=(),
        timeline=(CallMoment(NOW, "submitted"), CallMoment(NOW + timedelta(seconds=9), "completed")),
    )
    of_summary = {name: value for name, value in changes.items() if name in CallSummary.__dataclass_fields__}
    rest = {name: value for name, value in changes.items() if name not in of_summary}
    return replace(call, call=replace(summary, **of_summary), **rest)  # type: ignore[arg-type]


def shown(call: CallRecord, words: bool = False, **console: object) -> str:
    output = io.StringIO()
    render_call(call, Console(file=output, width=120, **console), words)  # type: ignore[arg-type]
    return output.getvalue()


def test_a_completed_call_reads_as_who_said_what_when() -> None:
    text = shown(record())
    assert "0:00  rep" in text
    assert "Hello, this is Anna from Metro Cable, how can I help you?" in text
    assert "0:03  customer  -  My internet is terrible" in text  # a tone mark
    assert "completed" in text
    assert "+12025550143 -> +12025550100, incoming" in text


def test_tasks_have_owner_due_date_and_quote() -> None:
    text = shown(record())
    assert "[ ]" in text
    assert "rep, commitment, due 2025-04-17" in text
    assert '"I will send you a new router tomorrow."' in text


def test_what_several_findings_rest_on_is_quoted_once() -> None:
    both = call(("rep", "I will send you a router tomorrow, and I will call you back on Friday."), ("customer", "Yes."))
    findings = analyze(both)
    assert len(next(finding for finding in findings if finding.step == "tasks").value["tasks"]) == 2
    direction = next(finding for finding in analyze(MATERIAL) if finding.step == "direction")
    assert len(direction.evidence) > len(set(direction.evidence))
    text = shown(replace(record(), transcript=both.transcript, findings=(*findings, direction)))
    tasks = text.split("Tasks", 1)[1].split("Contacts", 1)[0]
    assert tasks.count('"I will send you a router tomorrow, and I will call you back on Friday."') == 1
    for quote in {f'{evidence.start:.1f} s: "{evidence.quote}"' for evidence in direction.evidence}:
        assert text.count(quote) == 1


def test_people_are_called_by_their_names_where_these_are_known() -> None:
    agent = Finding("agent", 1, {"user_id": "u-1", "name": "Dana Wolf", "source": "voice"})
    contacts = Finding("contacts", 1, {"contact_id": "c-1", "reason": "number"})
    contact = Contact("c-1", "Peter Miller", None, None, None)
    rep = Speaker("rep", Role.REP, 0.9, "voice", "u-1")
    transcript = replace(MATERIAL.transcript, speakers=(rep, *MATERIAL.transcript.speakers[1:]))
    text = shown(replace(record(), findings=(agent, contacts), contacts=(contact,), transcript=transcript))
    assert "rep is rep (voice, 90%), Dana Wolf" in text
    assert "Dana Wolf, by voice" in text
    assert "contact Peter Miller (number)" in text
    assert "u-1" not in text and "c-1" not in text


def test_layout_reason_contacts_warnings_and_timeline_are_told() -> None:
    text = shown(record())
    assert "left is the rep" in text
    assert "by hand" in text
    assert "Peter Miller" in text
    assert "The file has 4 channels" in text
    assert text.index("submitted") < text.rindex("completed")


def test_rep_and_customer_have_different_colours_on_a_terminal_and_none_without() -> None:
    styles = speaker_styles(MATERIAL.transcript.speakers)
    assert styles["rep"] != styles["customer"]
    assert "\x1b[" in shown(record(), force_terminal=True, color_system="truecolor")
    assert "\x1b[" not in shown(record())


def test_voices_without_a_role_have_colours_of_their_own() -> None:
    styles = speaker_styles([Speaker(label, Role.UNKNOWN, 0.5, "talk") for label in "ABCDEF"])
    assert len({styles[label] for label in "ABCD"}) == 4


def test_words_are_shown_with_time_and_confidence_when_asked_for() -> None:
    assert "Hello,[0.00-" not in shown(record())
    assert "Hello,[0.00-" in shown(record(), words=True)


@pytest.mark.parametrize(
    ("retryable", "advice"), [(True, "Retrying may help"), (False, "Retrying with the same recording will not")]
)
def test_a_failed_call_says_why_and_whether_a_retry_could_help(retryable: bool, advice: str) -> None:
    failure = Failure("not_audio", "The file is not audio that can be decoded.", retryable)
    text = shown(record(CallState.FAILED, failure=failure, transcript=None, findings=(), layout=None))
    assert "not_audio: The file is not audio that can be decoded." in text
    assert advice in text


def test_a_call_at_work_says_stage_attempt_and_next_try() -> None:
    text = shown(
        record(CallState.TRANSCRIBING, stage="asr", attempts=3, next_try=NOW, transcript=None, findings=(), layout=None)
    )
    assert "stage recognition, attempt 3, next try 2026-11-02" in text


def test_an_empty_transcript_gives_its_reason() -> None:
    empty = replace(MATERIAL.transcript, turns=(), note="nobody speaks in this call")
    assert "nobody speaks in this call" in shown(record(transcript=empty, findings=()))


def test_text_in_brackets_is_text_and_no_markup() -> None:
    turn = MATERIAL.transcript.turns[0]
    odd = replace(MATERIAL.transcript, turns=(replace(turn, words=(Word(0, 1, "[/bold][red]odd", 0.9),)),))
    assert "[/bold][red]odd" in shown(record(transcript=odd, warnings=("[/red]",), from_number="[/x]"))


def test_the_figures_of_a_party_are_those_that_the_step_measures() -> None:
    findings = analyze(timeline(20, rep=[(0, 4), (9, 13)], customer=[(6, 8)]))
    (measured,) = (finding for finding in findings if finding.step == "statistics")
    assert PARTY_FIGURES.keys() <= measured.value["parties"]["rep"].keys()
    output = io.StringIO()
    Console(file=output, width=120).print(*render_finding(measured), sep="\n")
    assert "patience           1 s  2 s" in output.getvalue()


def test_any_new_step_is_shown_without_a_view_of_its_own() -> None:
    finding = Finding("churn", 1, {"risk": 0.25, "reasons": ["price", "outage"], "next": [{"what": "call back"}]})
    text = "\n".join(str(line) for line in render_finding(finding))
    assert "risk: 0.25" in text
    assert "reasons: price, outage" in text
    assert "- what: call back" in text


def test_an_outcome_of_this_process_reads_like_a_stored_call() -> None:
    output = io.StringIO()
    findings = analyze(MATERIAL)
    render_outcome("call.wav", MATERIAL.transcript, findings, ("careful",), Console(file=output, width=120))
    text = output.getvalue()
    assert text.startswith("call.wav")
    assert "0:00  rep" in text
    assert "careful" in text


def test_json_on_the_terminal_is_the_json_of_the_views() -> None:
    call = record()
    assert plain(call) == json.loads(dump_json(call))


def test_clock_has_hours_only_when_needed() -> None:
    assert [clock(0), clock(75.9), clock(3661)] == ["0:00", "1:15", "1:01:01"]


def test_subtitles_are_short_and_timed_from_the_words() -> None:
    lines = export.srt(MATERIAL.transcript).split("\n\n")
    assert lines[0].startswith("1\n00:00:00,000 --> 00:00:03,000\nrep: Hello, this is Anna")
    long = tuple(Word(at, at + 0.9, f"word{at}", 0.9) for at in range(20))
    turn = replace(MATERIAL.transcript.turns[0], words=long, end=20.0)
    cues = export.srt(replace(MATERIAL.transcript, turns=(turn,))).strip().split("\n\n")
    assert len(cues) == 3
    assert "00:00:14,000 --> 00:00:19,900" in cues[-1]


def test_webvtt_escapes_what_would_be_markup() -> None:
    turn = replace(MATERIAL.transcript.turns[0], words=(Word(0, 1, "<b>&", 0.9),))
    transcript: Transcript = replace(MATERIAL.transcript, turns=(turn,))
    assert export.vtt(transcript) == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n<v rep>&lt;b&gt;&amp;\n\n"


def test_plain_text_has_a_line_per_turn() -> None:
    assert export.text(MATERIAL.transcript).splitlines()[1] == (
        "[00:00:03] customer: My internet is terrible, I am very angry."
    )


def made_in(transcript: Transcript, words: bool = False) -> str:
    return shown(record(transcript=transcript, layout=transcript.layout), words)


def label(start: float, end: float, kind: str, detail: str | None, keys: int | None = None) -> Label:
    return Label(start, end, LabelKind(kind), 1.0, detail, keys)


def test_a_channel_says_what_it_holds() -> None:
    kinds = (
        (0, 12, "ringback", "440+480 Hz"),
        (12, 12.5, "dtmf", None, 2),
        (12.5, 13, "dtmf", None, 1),
        (13, 74, "speech", None),
    )
    labels = (tuple(label(*kind) for kind in kinds), ())
    text = made_in(replace(MATERIAL.transcript, labels=labels))
    assert "channel 0 (rep): speech 61.0 s, ringback 12.0 s, 3 keys" in text
    assert "channel 1 (customer): " in text


def test_what_is_no_speech_stands_in_the_transcript_where_it_is_heard() -> None:
    kinds = (
        (0.0, 1.0, "ringback", None),
        (1.0, 3.0, "silence", None),
        (3.0, 3.4, "ringback", None),
        (3.4, 7.0, "speech", None),
        (7.0, 7.2, "dtmf", "2", 1),
        (7.2, 7.6, "music", None),
        (7.6, 9.0, "speech", None),
        (9.0, 20.0, "music", None),
        (20.0, 20.4, "beep", None),
        (26.0, 26.2, "dtmf", "7", 1),
        (27.0, 27.2, "dtmf", "1", 1),
        (33.0, 33.2, "dtmf", None, 12),
    )
    labels = (tuple(label(*kind) for kind in kinds), ())
    turns = tuple(
        replace(turn, start=start) for turn, start in zip(MATERIAL.transcript.turns, (4, 8, 21, 25), strict=True)
    )
    lines = made_in(replace(MATERIAL.transcript, labels=labels, turns=turns)).splitlines()
    shown_at = [
        next(at for at, line in enumerate(lines) if mark in line) for mark in ("[ringback, 3 s]", "Metro", "[1 key")
    ]
    shown_at += [
        next(at for at, line in enumerate(lines) if mark in line) for mark in ("terrible", "[hold music, 11 s]")
    ]
    assert shown_at == sorted(shown_at)
    assert "0:07" in lines[shown_at[2]] and '[1 key "2"]' in lines[shown_at[2]]
    assert sum('[2 keys "71"]' in line or "[12 keys]" in line for line in lines) == 2, "5.8 s apart"
    assert any("[beep]" in line for line in lines)
    assert sum("hold music" in line for line in lines) == 1, "0.4 s of music are shown in the sums alone"


def test_bleed_is_told_once() -> None:
    reason = "The two channels differ. Channel 1 bleeds into channel 0 at -18 dB, 12 ms later; it is suppressed there."
    layout = replace(MATERIAL.transcript.layout, reason=reason, bleed=(Bleed(1, -18.2, 0.012, 0.9),))
    text = made_in(replace(MATERIAL.transcript, layout=layout))
    assert text.count("-18 dB") == 1 and text.count("suppressed") == 1


def test_languages_are_listed_only_where_there_are_several_and_a_doubt_is_told() -> None:
    stretches = (LanguageStretch(0, 0, 9, "en", 0.98), LanguageStretch(0, 9, 14, "es", 0.91))
    both = replace(MATERIAL.transcript, languages=stretches, language_note="2 languages are spoken.")
    assert "channel 0, 9.0 - 14.0 s: es (91%)" in made_in(both)
    assert "2 languages are spoken." in made_in(both)
    assert "channel 0, 0.0" not in made_in(replace(both, languages=stretches[:1]))


def test_doubtful_words_are_marked_and_text_that_was_taken_out_is_listed() -> None:
    first = MATERIAL.transcript.turns[0]
    words = tuple(replace(word, doubtful=at in (3, 4)) for at, word in enumerate(first.words))
    doubts = (
        Doubt(0, 0.8, 1.5, ("improbable",), "Anna from"),
        Doubt(1, 9.0, 10.0, ("no_sound", "of_tomorrow"), "Thanks for watching.", kept=False),
    )
    turns = (replace(first, words=words), *MATERIAL.transcript.turns[1:])
    text = made_in(replace(MATERIAL.transcript, turns=turns, doubts=doubts))
    assert "this is ~Anna from~ Metro Cable" in text
    assert "~words~ are doubtful" in text
    assert '? channel 1, 9.0 - 10.0 s, removed: "Thanks for watching."' in text
    assert REASONS["no_sound"] in " ".join(text.split()) and "of_tomorrow" in text
    assert "~" not in made_in(MATERIAL.transcript) and "Doubts" not in made_in(MATERIAL.transcript)


def test_words_that_are_only_unsure_are_counted_and_not_listed() -> None:
    first = MATERIAL.transcript.turns[0]
    words = tuple(replace(word, doubtful=at in (1, 3)) for at, word in enumerate(first.words))
    doubts = tuple(Doubt(0, word.start, word.end, ("unsure",), word.text) for word in words if word.doubtful)
    both = (Doubt(1, 9.0, 10.0, ("improbable", "unsure"), "Thanks."), *doubts)
    turns = (replace(first, words=words), *MATERIAL.transcript.turns[1:])
    text = " ".join(made_in(replace(MATERIAL.transcript, turns=turns, doubts=both)).split())
    assert text.count("not sure") == 2 and "? 2 places above, not sure" in text
    assert '? channel 1, 9.0 - 10.0 s, not sure: "Thanks."' in text and text.count(REASONS["unsure"]) == 2
    assert "? 1 place above" in made_in(replace(MATERIAL.transcript, turns=turns, doubts=doubts[:1]))


def test_a_machine_is_called_one_everywhere() -> None:
    greeting = replace(MATERIAL.transcript.turns[1], machine=True)
    transcript = replace(MATERIAL.transcript, turns=(greeting,), note="Only a voicemail greeting was heard.")
    assert "customer (machine)" in made_in(transcript)
    assert "Only a voicemail greeting was heard." in made_in(transcript)
    assert "customer (machine): My internet" in export.text(transcript)
    assert "customer (machine): My internet" in export.srt(transcript)
    assert "<v customer (machine)>" in export.vtt(transcript)


def test_the_tone_says_where_it_turns_and_the_statistics_who_interrupts_and_how_long_one_is_on_hold() -> None:
    def shown_finding(finding: Finding) -> str:
        output = io.StringIO()
        Console(file=output, width=120).print(*render_finding(finding), sep="\n")
        return output.getvalue()

    evidence = {"turn": 3, "start": 10.5, "end": 13.5, "quote": "That is wonderful."}
    point = {"turn": 3, "speaker": "customer", "from": "negative", "to": "positive", "why": "", "evidence": evidence}
    tone = {"label": "positive", "score": 0.5, "basis": ["words"]}
    value = {"overall": tone, "parties": {"customer": tone | {"confidence": 0.61}}, "turning_points": [point]}
    text = shown_finding(Finding("tone", 3, value))
    assert "customer positive (+0.50), 61%" in text
    assert 'customer turns from negative to positive at 10.5 s: "That is wonderful."' in text
    parties = {"rep": {"talk_ratio": 0.5, "interruptions": 2, "backchannels": 7}}
    text = shown_finding(Finding("statistics", 3, {"parties": parties, "hold_share": 0.25}))
    assert ["interruptions", "2"] in [line.split() for line in text.splitlines()]
    assert "hold 25%" in text


def test_a_job_without_a_worker_names_none() -> None:
    job = JobSummary(
        *(UUID(int=1), UUID(int=2), "process", "fetching", "fetch", None, 1, 0, 0, START, START, None, None, None, None)
    )
    assert about(job) == about(replace(job, worker="node-1")).removesuffix(" on node-1") != ""
