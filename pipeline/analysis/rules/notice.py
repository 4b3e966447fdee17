import re
from collections.abc import Iterator
from typing import Any

from pipeline.analysis.talk import Sentence, SpokenTurn, Turns, read
from pipeline.domain.insight import Finding, Material
from pipeline.domain.vocabulary import NoticeState
from pipeline.language.pack import missing

ANNOUNCEMENT = "announcement"  # by a machine, on whichever line


class RecordingNoticeStep:
    """Whether someone says that the call is recorded: the first time, at which second, and by whom.

    Questions whether it is recorded, and statements that it is not, do not count.
    """

    name = "recording_notice"
    version = 1

    def run(self, material: Material) -> Finding:
        turns = read(material, machines=True)
        for turn, sentence, match in _notices(turns):
            evidence = sentence.evidence(match.span())
            value = _value(NoticeState.FOUND, evidence.start, ANNOUNCEMENT if turn.turn.machine else turn.role.value)
            return Finding(self.name, self.version, value, (evidence,))
        if reason := _why_not(turns, material):
            return Finding(self.name, self.version, _value(NoticeState.COULD_NOT_LOOK), note=reason)
        return Finding(self.name, self.version, _value(NoticeState.NOT_FOUND))


def _value(state: NoticeState, at: float | None = None, by: str | None = None) -> dict[str, Any]:
    return {"state": state.value, "at": at, "by": by}


def _notices(turns: Turns) -> Iterator[tuple[SpokenTurn, Sentence, re.Match[str]]]:
    for turn in turns:
        for sentence in turn.sentences:
            if any(pattern.search(sentence.text) for pattern in turn.pack.patterns("notice", "not_recorded")):
                continue
            matches = (pattern.search(sentence.text) for pattern in turn.pack.patterns("notice", "recorded"))
            yield from ((turn, sentence, match) for match in matches if match)


def _why_not(turns: Turns, material: Material) -> str | None:
    """Return why a notice may have been missed; None if all words were read."""
    if not any(turn.turn.words for turn in turns):
        return "no speech in this call"
    unread = next((turn for turn in turns if not turn.pack.known), None)
    return None if unread is None else missing(unread.turn.language or material.transcript.language)
