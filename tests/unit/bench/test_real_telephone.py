"""`bench.real telephone` on a small folder in both forms, without engines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from bench.real import telephone
from bench.real.outputs import HeardTurn, RecognizedWord, SystemOutput
from bench.real.score import cp_errors

NAME = "0123abcd"
TASK = {"task_type": "transfer money", "transfer amount": 135}
LINES = (
    ("agent", 1.0, 4.0, "hello this is harper valley national bank my name is jennifer how can i help you today"),
    ("caller", 6.0, 9.0, "hi my name is robert johnson i would like to transfer money between my accounts"),
    ("agent", 10.0, 11.0, "what is the transfer amount"),
    ("caller", 12.0, 14.0, "uh one hundred and thirty five dollars"),
    ("agent", 15.0, 15.2, "[noise]"),
    ("agent", 16.0, 20.0, "one hundred and thirty five dollars has been transferred from your savings account"),
    ("agent", 20.5, 22.0, "is there anything else i can help you with"),
    ("caller", 23.0, 24.0, "no thank you"),
)


def corpus(folder: Path) -> Path:
    rows = [
        {"speaker_role": who, "offset_ms": 1000 * start, "duration_ms": 1000 * (end - start), "human_transcript": text}
        for who, start, end, text in LINES
    ]
    metadata = {
        "agent": {"metadata": {"agent_name": "Jennifer"}},
        "caller": {"metadata": {"first and last name": "Robert Johnson"}},
        "tasks": [TASK],
    }
    for part, content in (("transcript", rows), ("metadata", metadata)):
        (folder / part).mkdir()
        (folder / part / f"{NAME}.json").write_text(json.dumps(content))
    for party, seconds in (("agent", 25), ("caller", 24)):
        (folder / "audio" / party).mkdir(parents=True)
        soundfile.write(folder / "audio" / party / f"{NAME}.wav", np.full(8000 * seconds, 0.25), 8000)
    return folder


def flat(folder: Path) -> Path:
    turns = [{"speaker": who, "start": start, "end": end, "text": text} for who, start, end, text in LINES]
    data = {"agent_name": "Jennifer", "caller_name": "Robert Johnson", "task": TASK, "turns": turns}
    (folder / f"{NAME}.json").write_text(json.dumps(data))
    soundfile.write(folder / f"{NAME}.flac", np.full((8000 * 25, 2), 0.25), 8000)
    return folder


@pytest.mark.parametrize("make", [corpus, flat])
def test_both_forms_of_the_folder_hold_the_same_call(make: Any, tmp_path: Path) -> None:
    call = telephone.read(make(tmp_path), NAME)
    assert (call.agent, call.customer, call.task, len(call.segments)) == ("Jennifer", "Robert Johnson", TASK, 7)
    channels, rate = telephone.sound_of(tmp_path, NAME)
    assert (channels.shape, rate) == ((2, 200_000), 8000)


def test_names_and_actions_are_found_in_both_writings(tmp_path: Path) -> None:
    call = telephone.read(flat(tmp_path), NAME)
    rows = [telephone.text_row(call, cased) for cased in (False, True)]
    figures = telephone.figures(rows)
    for form in ("uncased text", "cased text"):
        expected = dict.fromkeys(("agents named", "callers named", "actions", "actions: amount"), "1 of 1")
        assert expected.items() <= figures[form].items()
        assert (figures[form]["actions invented"], figures[form]["outcome refused"]) == (0, 0)
    assert "actions: amount" in telephone.table(figures)


def test_a_wrong_amount_and_a_wrong_name_are_counted(tmp_path: Path) -> None:
    call = telephone.read(flat(tmp_path), NAME)
    row = telephone.understood(
        telephone.TelephoneCall(NAME, "Mary", "Robert Johnson", {**TASK, "transfer amount": 99}, call.segments),
        telephone.analyze(telephone.material(case(call))),
    )
    assert row["named"] == {"rep": False, "customer": True}, "no Mary speaks, and another name is found"
    assert (row["action"], row["details"]) == (True, {"amount": False})


def case(call: telephone.TelephoneCall) -> dict[str, Any]:
    given = {"language": "en", "startTime": telephone.START, "durationSeconds": 24, "roster": [], "contacts": []}
    return {"input": {**given, "turns": telephone.marked(call, cased=True)}}


def test_words_of_the_other_party_are_errors_of_a_mixed_call(tmp_path: Path) -> None:
    call = telephone.read(flat(tmp_path), NAME)
    words = [
        RecognizedWord(s.start + 0.1 * at, s.start + 0.1 * at + 0.1, f" {word}", 0.9, False, 0, turn)
        for turn, s in enumerate(call.segments)
        for at, word in enumerate(s.text.split())
    ]
    truth = call.truth(25.0, mixed=True)
    for voices, errors in (("ABABAAB", 0), ("AAAAAAA", None)):
        turns = tuple(HeardTurn(voice, "en") for voice in voices)
        output = SystemOutput(NAME, "switchboard", "base", tuple(words), {}, "en", turns)
        found, of = cp_errors(truth, output)
        assert found == errors if errors is not None else found > of / 3
