from collections.abc import AsyncIterator
from uuid import UUID

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import CreatedErasure, Erasure


class AsyncErasing:
    """Erasures of calls, persons and teams; they need the scope `admin`. A key of a team erases calls of its team."""

    _session: AsyncSession

    async def erase(
        self,
        *,
        call_id: UUID | str | None = None,
        number: str | None = None,
        contact_id: UUID | str | None = None,
        member_id: UUID | str | None = None,
        team_id: UUID | str | None = None,
        dry_run: bool = False,
    ) -> CreatedErasure:
        """Erase a call, the calls of a number, a contact, a member's name and voice, or a team; exactly one of them.

        The service continues after the response: see `erasure`. `dry_run`: only count what matches. Raises
        `InvalidRequest`.
        """
        ids = {"callId": call_id, "contactId": contact_id, "memberId": member_id, "teamId": team_id}
        target = {name: str(value) for name, value in {**ids, "number": number}.items() if value is not None}
        return await self._session.ask(CreatedErasure, "createErasure", body={**target, "dryRun": dry_run})

    async def erasure(self, erasure_id: UUID | str) -> Erasure:
        """Return an erasure with its progress; `status`: running or done. Raises `NotFound`."""
        return await self._session.ask(Erasure, "showErasure", erasure_id=erasure_id)

    async def erasures(self) -> AsyncIterator[Erasure]:
        """Yield the erasures, the latest first."""
        cursor: str | None = None
        while True:
            page = await self._session.ask(Page[Erasure], "listErasures", {"cursor": cursor})
            for erasure in page.items:
                yield erasure
            cursor = page.next
            if cursor is None:
                return
