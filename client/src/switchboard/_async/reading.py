"""Lists and single calls."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Unpack
from uuid import UUID

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.filters import CallFilters, TaskFilters, Version
from switchboard.models import (
    CallLine,
    CallListPage,
    CallMoment,
    CallRecord,
    ContactLine,
    MemberLine,
    TaskLine,
    TeamQueue,
    Transcript,
)

MOST = 200  # items of a page
_TEXTS = {"txt": "showTranscriptText", "srt": "showSubRip", "vtt": "showWebVtt"}


class AsyncReading:
    """What a key with the scope `read` sees."""

    _session: AsyncSession

    async def read(self, call_id: UUID | str, *, version: Version = "corrected") -> CallRecord:
        """Everything known of a call. Raises `NoSuchCall`."""
        return await self._session.ask(CallRecord, "showCall", {"version": version}, call_id=call_id)

    async def transcript(self, call_id: UUID | str, *, version: Version = "corrected") -> Transcript:
        """What was said. Raises `NotReady` before the call is completed."""
        return await self._session.ask(Transcript, "showTranscript", {"version": version}, call_id=call_id)

    async def transcript_text(
        self, call_id: UUID | str, *, form: Literal["txt", "srt", "vtt"] = "txt", version: Version = "corrected"
    ) -> str:
        """What was said, as text or subtitles. Raises `NotReady` before the call is completed."""
        return await self._session.text(_TEXTS[form], {"version": version}, call_id=call_id)

    async def events(self, call_id: UUID | str) -> list[CallMoment]:
        """What happened to a call, the earliest first."""
        return (await self._session.ask(Page[CallMoment], "listCallEvents", call_id=call_id)).items

    def calls(self, **filters: Unpack[CallFilters]) -> AsyncIterator[CallLine]:
        """All calls of the filters, the latest first; of `updated_after`, the earliest change first."""
        return self._items(CallListPage, "listCalls", filters)

    def search(self, text: str, /, **filters: Unpack[CallFilters]) -> AsyncIterator[CallLine]:
        """Calls in which this was said, the latest first; where, with seconds, is in `hits`.

        Words are found in all forms of their language; a "phrase" in quotes, `or` between alternatives, `-` before
        what must not occur.
        """
        return self._items(CallListPage, "listCalls", {**filters, "text": text})

    async def closest(self, meaning: str, /, *, limit: int = 50, **filters: Unpack[CallFilters]) -> list[CallLine]:
        """The calls that are most like what you write, the most similar first; `hits` has the passages.

        Raises `Conflict` where search by meaning is switched off. `text`, `name` and `updated_after` order otherwise
        and are refused.
        """
        given = {**filters, "meaning": meaning, "limit": limit}
        return (await self._session.ask(CallListPage, "listCalls", given)).items

    async def call_page(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[CallFilters]
    ) -> CallListPage:
        """One page. `next` is the cursor of the page behind; `as_of` goes into `updated_after` later, and no change
        is missed."""
        return await self._session.ask(CallListPage, "listCalls", {**filters, "limit": limit, "cursor": cursor})

    def tasks(self, **filters: Unpack[TaskFilters]) -> AsyncIterator[TaskLine]:
        """Tasks across calls, the earliest due first, those without a date last."""
        return self._items(Page[TaskLine], "listTasks", filters)

    def contacts(self, *, text: str | None = None) -> AsyncIterator[ContactLine]:
        """Contacts by name. `text`: part of a name, company, e-mail address or number."""
        return self._items(Page[ContactLine], "listContacts", {"text": text})

    def members(self, *, team_id: UUID | str | None = None) -> AsyncIterator[MemberLine]:
        """Members by name."""
        return self._items(Page[MemberLine], "listMembers", {"team_id": team_id})

    async def queue(self) -> list[TeamQueue]:
        """What waits and runs, by team."""
        return (await self._session.ask(Page[TeamQueue], "showQueue")).items

    async def _items(self, kind: type[Any], operation: str, filters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The items of all pages; a page is asked for when the one before it is used up."""
        cursor: str | None = None
        while True:
            page = await self._session.ask(kind, operation, {**filters, "limit": MOST, "cursor": cursor})
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return
