"""Look-ups of API keys that many requests wait for at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from pipeline.domain.call import Sender
from serve_app.http.auth import Authenticator, UnknownKeyLimiter
from serve_app.http.problems import NotAuthenticated, Unavailable
from tests.support.intake_in_memory import sender

ADDRESS, OTHER_ADDRESS = "203.0.113.7", "203.0.113.8"


class Keys:
    """A slow store of keys. `valid` has those that exist."""

    def __init__(self) -> None:
        self.valid: dict[str, Sender] = {"sb_good": sender("submit", team=uuid4())}
        self.asked: list[str] = []
        self.answer = asyncio.Event()
        self.fails = False

    async def find(self, secret: str) -> Sender | None:
        self.asked.append(secret)
        known = self.valid.get(secret)
        await self.answer.wait()
        if self.fails:
            raise Unavailable(5)
        return known


@pytest.fixture
async def keys() -> Keys:
    return Keys()


Ask = Callable[..., Awaitable[Sender]]


@pytest.fixture
def ask(keys: Keys) -> Ask:
    authenticator = Authenticator(keys.find, remember_seconds=0, limiter=UnknownKeyLimiter(0.5, 5))  # five at once
    return lambda secret, address=ADDRESS: authenticator.sender([f"Bearer {secret}"], address)


async def begun(*requests: Awaitable[Sender]) -> list[asyncio.Future[Sender]]:
    tasks = [asyncio.ensure_future(request) for request in requests]
    await asyncio.sleep(0.01)
    return tasks


async def test_many_requests_of_a_key_cost_their_address_one_look_up(keys: Keys, ask: Ask) -> None:
    """512 streams of one key used up the limit of their address, and a neighbor there got 503."""
    crowd = await begun(*(ask("sb_good") for _ in range(600)))
    neighbor = await begun(ask("sb_bad"))
    keys.answer.set()
    senders = await asyncio.gather(*crowd)
    assert {found.key_id for found in senders} == {keys.valid["sb_good"].key_id}
    with pytest.raises(NotAuthenticated):
        await neighbor[0]
    assert keys.asked.count("sb_good") == 2, "the first one, and one for all that came while it ran"


async def test_a_request_does_not_trust_a_look_up_that_began_before_it(keys: Keys, ask: Ask) -> None:
    early = await begun(ask("sb_good"))
    del keys.valid["sb_good"]  # revoked
    late = await begun(ask("sb_good"), ask("sb_good"))
    keys.answer.set()
    await early[0]
    for request in late:
        with pytest.raises(NotAuthenticated):
            await request


async def test_nobody_waits_twice_for_a_database_that_does_not_respond(keys: Keys, ask: Ask) -> None:
    crowd = await begun(*(ask("sb_good") for _ in range(20)))
    keys.fails = True
    keys.answer.set()
    refusals = await asyncio.gather(*crowd, return_exceptions=True)
    assert {type(refusal) for refusal in refusals} == {Unavailable}
    assert len(keys.asked) == 1
    keys.fails = False
    await ask("sb_good")  # the next request asks again


async def test_a_client_that_leaves_takes_nobody_with_it(keys: Keys, ask: Ask) -> None:
    first, second = await begun(ask("sb_good"), ask("sb_good"))
    first.cancel()
    keys.answer.set()
    await second


async def test_guesses_of_clients_that_leave_are_counted(keys: Keys, ask: Ask) -> None:
    for number in range(5):
        (guess,) = await begun(ask(f"sb_guess{number}"))
        guess.cancel()
    with pytest.raises(Unavailable):
        await ask("sb_guess5")
    assert len(keys.asked) == 5


async def test_the_limit_of_one_address_refuses_nobody_with_the_same_key_at_another(keys: Keys, ask: Ask) -> None:
    for number in range(5):
        (guess,) = await begun(ask(f"sb_guess{number}"))
        guess.cancel()
    _, limited, other = await begun(ask("sb_good", OTHER_ADDRESS), ask("sb_good"), ask("sb_good", OTHER_ADDRESS))
    keys.answer.set()
    with pytest.raises(Unavailable):
        await limited
    assert (await other).key_id == keys.valid["sb_good"].key_id
