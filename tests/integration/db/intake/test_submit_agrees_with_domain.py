"""The SQL function `submit_calls` agrees with the model in `tests/submission_model.py`."""

from typing import Any
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.intake.group_commit import recording_identity
from pipeline.domain.call import Call, CallState
from tests.postgres import World
from tests.submission_model import merge, next_state

URLS = ["https://s.example/a?sig=1", "https://s.example/a?sig=2", "https://s.example/b", "https://s.example/c?x=1"]
USERS = [UUID(int=1), UUID(int=2)]

fields = st.fixed_dictionaries(
    {
        "from_number": st.sampled_from(["+49301234567", "anonymous"]),
        "outgoing": st.sampled_from([None, True, False]),
        "duration": st.sampled_from([None, 0, 60]),
        "user_id": st.sampled_from([None, *USERS]),
        "recording_url": st.sampled_from([None, *URLS]),
        "recording_url2": st.sampled_from([None, *URLS]),
    }
).map(lambda sent: sent if sent["recording_url"] else sent | {"recording_url2": None})
ends = st.sampled_from([CallState.COMPLETED, CallState.FAILED])


def pair(call: Call | None) -> tuple[str | None, ...]:
    urls = (call.recording_url, call.recording_url2) if call else (None, None)
    return tuple(url and recording_identity(url) for url in urls)


async def end(world: World, state: CallState) -> None:
    """The job ends, as far as the state is concerned."""
    await world.execute("UPDATE calls SET state = :state WHERE call_id = :id", state=state.value, id=world.call_id)
    await world.execute(
        "UPDATE jobs SET state = 'done' WHERE call_pk = (SELECT id FROM calls WHERE call_id = :id)", id=world.call_id
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(fields | ends, min_size=1, max_size=7))
async def test_any_order_and_repetition_of_submissions_gives_the_latest_value_per_field_and_its_state(
    world: World, steps: list[Any]
) -> None:
    world.call_id = uuid4()
    call: Call | None = None
    state: CallState | None = None
    job: UUID | None = None
    version = 0
    for step in steps:
        if isinstance(step, CallState):
            if state is CallState.TRANSCRIBING:
                await end(world, step)
                state = step
            continue
        sent = world.submission(**step, team_id=world.team_id)
        answer = await world.submit(**step)
        merged = merge(call, sent)
        same = call is not None and pair(merged) == pair(call)
        new_job = sent.recording_url is not None and not (
            same and state in (CallState.TRANSCRIBING, CallState.COMPLETED)
        )
        stored = await world.row()
        version += call is None or _metadata(merged) != _metadata(call)
        state, call = next_state(state, sent, same), merged

        assert await world.call() == merged
        assert stored["state"] == state
        assert stored["metadata_version"] == version
        assert answer.status is (CallState.RECEIVED if sent.recording_url is None else CallState.TRANSCRIBING)
        assert answer.job_id == (None if sent.recording_url is None else stored["job_id"])
        assert (stored["job_id"] != job) is new_job
        job = stored["job_id"]
    live = await world.rows(
        "SELECT kind, count(*) AS n FROM jobs JOIN calls ON calls.id = call_pk"
        " WHERE call_id = :id AND jobs.state IN ('fetching', 'queued', 'running') GROUP BY kind",
        id=world.call_id,
    )
    assert all(row["n"] == 1 for row in live)
    if state is CallState.TRANSCRIBING:
        assert [row["kind"] for row in live] == ["process"]


def _metadata(call: Call) -> tuple[object, ...]:
    return (pair(call), call.from_number, call.outgoing, call.duration, call.user_id, call.team_id)
