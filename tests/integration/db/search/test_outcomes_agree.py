import json
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.core.rows import dump_json
from db.search import trends as outcomes
from pipeline.domain.answers import QuestionAnswer, TrackerResult
from pipeline.domain.scorecards import ScorecardResult, outcome_of
from tests.postgres import World

STATES = st.sampled_from(["said", "not_said", "not_asked", "out_of_scope"])
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=8)
ANSWERS: dict[str, st.SearchStrategy[Any]] = {
    "yes/no": st.sampled_from(["yes", "no"]),
    "choice": TEXT,
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "text": TEXT,
    "date": st.just("2026-11-25"),
}


@st.composite
def answer(draw: st.DrawFn, key: str) -> QuestionAnswer | TrackerResult:
    state: Any = draw(STATES)
    kind: Any = draw(st.sampled_from([*ANSWERS, "tracker"]))
    if kind == "tracker":
        return TrackerResult(key, 1, "?", draw(st.booleans()), state, draw(st.booleans()))
    return QuestionAnswer(key, 1, kind, "?", state, draw(ANSWERS[kind]) if state == "said" else None)


@st.composite
def score(draw: st.DrawFn, key: str) -> ScorecardResult:
    """Generate scores as `rescored` returns them: without a score nothing passed, and an auto-failed one is 0."""
    mark = draw(st.sampled_from([None, 0.0, 60.0]))
    failed = draw(st.booleans())
    points = 0.0 if failed else draw(st.one_of(st.none(), st.integers(0, 1000).map(lambda tenths: tenths / 10)))
    passed = None if mark is None or points is None else points >= mark and not failed
    return ScorecardResult(key, 1, "", mark, points, failed, passed, ())


ALL = st.integers(0, 6).flatmap(lambda count: st.tuples(*(answer(f"q{at}") for at in range(count))))
SCORES = st.integers(0, 3).flatmap(lambda count: st.tuples(*(score(f"card{at}") for at in range(count))))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ALL, SCORES)
async def test_what_a_call_is_found_by_is_what_its_answers_come_to(
    world: World, answers: tuple[QuestionAnswer | TrackerResult, ...], scores: tuple[ScorecardResult, ...]
) -> None:
    world.call_id = uuid4()
    await world.submit()
    pk = (await world.row()).id
    stored_answers = {
        "answers": [answer for answer in answers if isinstance(answer, QuestionAnswer)],
        "trackers": [answer for answer in answers if isinstance(answer, TrackerResult)],
        "scorecards": scores,
    }
    await world.execute(
        "INSERT INTO corrections (call_pk, workspace_id, edits, answers) VALUES (:pk, :home, 1, CAST(:held AS jsonb))",
        pk=pk,
        home=world.workspace_id,
        held=dump_json(stored_answers),
    )
    await world.execute("SELECT index_outcomes(:pk)", pk=pk)

    async with world.database.transaction(world.workspace_id) as connection:
        call_scores = (await outcomes.scores(connection, [pk])).get(pk, ())
    rows = await world.rows("SELECT key, outcome FROM call_outcomes WHERE call_pk = :pk", pk=pk)
    stored = {row.key: row.outcome for row in rows}
    expected = {answer.key: come for answer in answers if (come := outcome_of(answer)) is not None}
    assert {key: come for key, come in stored.items() if key.startswith("q")} == expected, json.dumps(stored)
    assert call_scores == tuple(
        outcomes.ScorecardScore(
            score.key, score.score, score.passed if not score.auto_failed else False, score.auto_failed
        )
        for score in scores
        if score.score is not None
    )
