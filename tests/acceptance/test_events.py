"""All events of a call as a receiver gets them from the running service: signed and in order."""

from standardwebhooks.webhooks import Webhook

from db.events import endpoints
from db.secrets.encryption import Sealer
from serve_app.webhooks import payload, signing
from tests.acceptance.running import Client
from tests.file_server import FileServer
from tests.receiver import receiving
from tests.synthetic_calls import synthetic_calls


async def test_a_call_arrives_as_received_transcribing_and_completed(client: Client, files: FileServer) -> None:
    secret = signing.new_secret()
    sample = next(call for call in synthetic_calls() if call.name.startswith("08"))
    async with receiving() as receiver:
        await endpoints.add(
            client.database, client.workspace_id, receiver.url, Sealer().seal(secret), include=["record", "transcript"]
        )
        bodies = sample.submissions(files.add)
        answers = [await client.accepted(body) for body in bodies]
        taken = await receiver.until(3, timeout=360)
        (record,) = await client.ended([bodies[-1]["callId"]])
    assert len(receiver.seen) == 3
    received, transcribing, completed = (Webhook(secret).verify(event.body, event.headers) for event in taken)
    assert [event["type"] for event in (received, transcribing, completed)] == [
        "call.received",
        "call.transcribing",
        "call.completed",
    ]
    for event in (received, transcribing, completed):
        payload.adapter().validate_python(event)
        assert event["data"]["callId"] == bodies[-1]["callId"]
    assert transcribing["data"]["jobId"] == completed["data"]["jobId"] == answers[-1]["jobId"]
    assert record.transcript is not None
    assert [turn["text"] for turn in completed["data"]["transcript"]] == [turn.text for turn in record.transcript.turns]
    assert len(completed["data"]["record"]["tasks"]) == len(record.tasks)
