from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pipeline.analysis.rules.commitments.titles import tokens
from pipeline.analysis.talk import SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role
from pipeline.domain.vocabulary import CallOutcome

EARLY = 6  # turns in which a machine answers or a wrong number shows
MIN_MESSAGE, MIN_SPOKEN = 25, 0.75  # words of a message, share of its time that is spoken: a dialogue has pauses
MIN_DECLINED = 2  # answers that decline: one offer of several is declined in any call
_NOT_BY_WORDS_ALONE = {
    CallOutcome.VOICEMAIL,
    CallOutcome.WRONG_NUMBER,
    CallOutcome.FOLLOW_UP,
    CallOutcome.NO_SPEECH,
}
BY_WORDS = tuple(outcome for outcome in CallOutcome if outcome not in _NOT_BY_WORDS_ALONE)
"""Outcomes that the other party's words show; their names are the keys of the phrases in the language packs."""


@dataclass(frozen=True, slots=True)
class DetectedOutcome:
    """An outcome; `evidence` is None without a clear sentence."""

    name: CallOutcome
    evidence: Evidence | None = None


def outcome(turns: Turns, tasks: list[dict[str, Any]], outgoing: bool | None = None) -> DetectedOutcome | None:
    """Return the outcome; None if unclear: no task is open, no party refuses or says goodbye."""
    if machine := _greeting(turns) or _message(turns):
        return DetectedOutcome(CallOutcome.VOICEMAIL, machine)
    if wrong := _cue(turns[: EARLY * 2], CallOutcome.WRONG_NUMBER) or _other_firm(turns[: EARLY * 2]):
        return DetectedOutcome(CallOutcome.WRONG_NUMBER, wrong)
    theirs = (Role.CUSTOMER, Role.UNKNOWN)
    removal = _cue(turns, "removal", theirs)
    open_tasks = [task for task in tasks if not (removal and _removes(task, removal))]
    if open_tasks:
        return DetectedOutcome(CallOutcome.FOLLOW_UP, Evidence(**open_tasks[0]["evidence"]))
    if removal:
        return DetectedOutcome(CallOutcome.REFUSED, removal)
    for name in BY_WORDS:
        refused = name is CallOutcome.REFUSED
        if cue := _refused(_without_closing(turns), outgoing) if refused else _cue(turns, name, theirs):
            return DetectedOutcome(name, cue)
    leave = _cue(turns[len(turns) // 2 :], "closing")
    return DetectedOutcome(CallOutcome.RESOLVED, leave) if leave else None


def _refused(turns: Turns, outgoing: bool | None) -> Evidence | None:
    """Return the words that refuse what the call was about: a caller may decline a side offer."""
    theirs = [turn for turn in turns if turn.role is not Role.REP]
    cues = [cue for turn in theirs if (cue := _cue((turn,), CallOutcome.REFUSED))]
    at_once = bool(cues) and cues[0].turn == theirs[0].turn.index
    if cues and (outgoing is not False or at_once or len(cues) >= MIN_DECLINED):
        return cues[0]
    declined = [turn for before, turn in pairwise(turns) if turn in theirs and _declines(turn, before)]
    return declined[-1].sentences[0].evidence() if outgoing and len(declined) >= MIN_DECLINED else None


def _declines(turn: SpokenTurn, before: SpokenTurn) -> bool:
    """Return whether a turn declines what the turn before proposes; a "no" to a question of fact does not."""
    asks_fact = before.text.endswith("?") and not before.pack.matches("tasks", "offer", before.text)
    says_no = any(turn.pack.matches("tasks", "no", part.text) for part in turn.sentences)
    return (says_no and not asks_fact) or turn.pack.matches("tasks", "decline", turn.text)


def _without_closing(turns: Turns) -> Turns:
    """Return the turns without answers to "anything else?": "no, thank you" refuses nothing there."""
    asked = (turn.role is Role.REP and turn.pack.matches("summary", "anything_else", turn.text) for turn in turns)
    return turns[:1] + tuple(turn for turn, is_closing in zip(turns[1:], asked, strict=False) if not is_closing)


def _removes(task: dict[str, Any], removal: Evidence) -> bool:
    """Return whether the task is the removal from a list, which ends a call and needs no follow-up."""
    return bool(0 <= task["evidence"]["turn"] - removal.turn <= 1)


def _greeting(turns: Turns) -> Evidence | None:
    """Return the words of a party's machine if no person of that party speaks after it."""
    for at, turn in enumerate(turns[:EARLY]):
        party, cue = turn.turn.speaker, _cue((turn,), CallOutcome.VOICEMAIL)
        replied = next((n for n, later in enumerate(turns) if n > at and later.turn.speaker != party), len(turns))
        if replied < len(turns) and turn.turn.machine and turn.role is Role.CUSTOMER and turn.sentences:
            cue = cue or turn.sentences[0].evidence()
        if cue and not any(later.turn.speaker == party and not later.turn.machine for later in turns[replied:]):
            return cue
    return None


def _message(turns: Turns) -> Evidence | None:
    """Return the beginning of a message: one party speaks and does not wait for answers."""
    spoken = [turn for turn in turns if not turn.turn.machine and turn.sentences]
    if len({turn.turn.speaker for turn in spoken}) != 1 or sum(len(turn.turn.words) for turn in spoken) < MIN_MESSAGE:
        return None
    seconds = sum(turn.turn.end - turn.turn.start for turn in spoken)
    waits = seconds < MIN_SPOKEN * (spoken[-1].turn.end - spoken[0].turn.start)
    not_separated = spoken[0].role is Role.UNKNOWN and any("?" in turn.text for turn in spoken)
    return None if waits or not_separated else spoken[0].sentences[0].evidence()


def _other_firm(turns: Turns) -> Evidence | None:
    """Return a question ("Isn't this the pharmacy?") that the agent denies, who repeats a word of the greeting."""
    ours = [turn for turn in turns if turn.by_agent and turn.sentences]
    firm = set(tokens(ours[0].sentences[0].text, ours[0].pack)) if ours else set()
    if not any(firm & set(tokens(turn.text, turn.pack)) for turn in ours[1:]):
        return None
    for turn, reply in pairwise(turns):
        cue = _cue((turn,), "other_firm", (Role.CUSTOMER,))
        if cue and reply in ours and any(reply.pack.matches("tasks", "no", part.text) for part in reply.sentences[:2]):
            return cue
    return None


def _cue(turns: Turns, key: str, roles: tuple[Role, ...] = tuple(Role)) -> Evidence | None:
    places = (place for turn in turns if turn.role in roles for place in turn.searches("summary", key))
    return next((sentence.evidence(match.span()) for sentence, match in places), None)
