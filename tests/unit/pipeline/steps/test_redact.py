from datetime import UTC, datetime
from uuid import uuid4

from db.workspace.redaction_policies import named
from pipeline.domain.call import Call
from pipeline.domain.insight import Member, Roster
from pipeline.domain.redaction import RedactionMode, RedactionPreset
from pipeline.domain.speech import AudioAnalysis, Layout, LayoutKind
from pipeline.domain.stage import Stage
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from pipeline.steps.call_run import CallRun
from pipeline.steps.redact import recognize_words
from tests.unit.pipeline.redaction.calls import call, texts

MEMBERS = (Member("7", "Ana Zqmann", ("Annie",)),)
TALK = (
    (0, "Good morning, my name is Ana Zqmann."),
    (1, "Hello, my name is Bo Qvist."),
    (0, "You can also say my name is Annie."),
)
AUDIO = AudioAnalysis(Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "stereo"), 20.0, (), ((), ()))


async def names_shown(exempt: bool) -> str:
    journal = MemoryJournal()
    await journal.record(Stage.RECOGNITION, call(*TALK))
    policy = named(RedactionMode.MASK, [RedactionPreset.PRIVACY], agents_exempt=exempt)
    roster = Roster(members=MEMBERS, redaction=policy)
    run = CallRun(
        Call(uuid4(), "+4930123", "+4930456", datetime(2026, 11, 2, tzinfo=UTC)),
        LocalWorkers(None, None),
        roster,
        journal,
        ProcessOptions(),
    )
    return " ".join(texts(await recognize_words(run, AUDIO)))


async def test_only_an_exempt_agent_keeps_the_name() -> None:
    for exempt in (False, True):
        shown = await names_shown(exempt)
        assert ("Ana" in shown, "Zqmann" in shown, "Annie" in shown) == (exempt,) * 3, shown
        assert "Qvist" not in shown
        assert "[PERSON]" in shown
