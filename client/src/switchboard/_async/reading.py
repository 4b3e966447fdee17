from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Unpack
from uuid import UUID

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.filters import CallFilters, TaskFilters, Version
from switchboard.models import (
    CallBatch,
    CallLine,
    CallListPage,
    CallMoment,
    CallRecord,
    ContactLine,
    MemberLine,
    TaskLine,
    Team,
    TeamQueue,
    TeamWeek,
    Transcript,
    Waveform,
)

MAX_PAGE = 200  # items
MAX_BATCH = 20  # records of a response
_TEXTS = {"txt": "showTranscriptText", "srt": "showSubRip", "vtt": "showWebVtt"}


class AsyncReading:
    """Reads, which need the scope `read`."""

    _session: AsyncSession

    async def read(
        self, call_id: UUID | str, *, version: Version = "corrected", unredacted: bool = False
    ) -> CallRecord:
        """Return the record of a call. Raises `NoSuchCall`.

        `unredacted`: with the words that a policy has sealed; needs the scope `unredacted`, and is logged.
        """
        query = {"version": version, "unredacted": unredacted or None}
        return await self._session.ask(CallRecord, "showCall", query, call_id=call_id)

    async def read_many(
        self, call_ids: Sequence[UUID | str], *, version: Version = "corrected"
    ) -> AsyncIterator[CallRecord]:
        """Yield the records of calls in this order, without those that do not exist; in few requests."""
        for first in range(0, len(call_ids), MAX_BATCH):
            batch = ",".join(map(str, call_ids[first : first + MAX_BATCH]))
            answer = await self._session.ask(CallBatch, "showCalls", {"call_ids": batch, "version": version})
            for record in answer.items:
                yield record

    async def transcript(
        self, call_id: UUID | str, *, version: Version = "corrected", unredacted: bool = False
    ) -> Transcript:
        """Return the transcript. Raises `NotReady` before the call is completed. `unredacted`: as for `read`."""
        query = {"version": version, "unredacted": unredacted or None}
        return await self._session.ask(Transcript, "showTranscript", query, call_id=call_id)

    async def transcript_text(
        self,
        call_id: UUID | str,
        *,
        form: Literal["txt", "srt", "vtt"] = "txt",
        version: Version = "corrected",
        unredacted: bool = False,
    ) -> str:
        """Return the transcript as text or subtitles. Raises `NotReady` before the call is completed.

        `unredacted`: as for `read`.
        """
        query = {"version": version, "unredacted": unredacted or None}
        return await self._session.text(_TEXTS[form], query, call_id=call_id)

    async def events(self, call_id: UUID | str) -> list[CallMoment]:
        """Return the history of a call, the earliest first."""
        return (await self._session.ask(Page[CallMoment], "listCallEvents", call_id=call_id)).items

    def calls(self, **filters: Unpack[CallFilters]) -> AsyncIterator[CallLine]:
        """Yield all matching calls, the latest first; with `updated_after`, the earliest change first."""
        return self._items(CallListPage, "listCalls", filters)

    async def count(self, **filters: Unpack[CallFilters]) -> int:
        """Return the number of matching calls; not with `text` and `name`."""
        parameters = {**filters, "total": True, "limit": 1}
        return (await self._session.ask(CallListPage, "listCalls", parameters)).total or 0

    def search(self, text: str, /, **filters: Unpack[CallFilters]) -> AsyncIterator[CallLine]:
        """Yield calls with this text in the transcript, the latest first; `hits` has the places with seconds.

        Words match in all forms of their language; use quotes for a "phrase", `or` between alternatives, `-` to
        exclude a word.
        """
        return self._items(CallListPage, "listCalls", {**filters, "text": text})

    async def closest(self, meaning: str, /, *, limit: int = 50, **filters: Unpack[CallFilters]) -> list[CallLine]:
        """Return the calls most similar in meaning, the most similar first; `hits` has the passages.

        Raises `Conflict` if search by meaning is switched off. Cannot be combined with `text`, `name` and
        `updated_after`.
        """
        parameters = {**filters, "meaning": meaning, "limit": limit}
        return (await self._session.ask(CallListPage, "listCalls", parameters)).items

    async def call_page(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[CallFilters]
    ) -> CallListPage:
        """Return a page. `next` is the cursor of the next page; pass `as_of` as `updated_after` later to miss no
        change."""
        return await self._session.ask(CallListPage, "listCalls", {**filters, "limit": limit, "cursor": cursor})

    def tasks(self, **filters: Unpack[TaskFilters]) -> AsyncIterator[TaskLine]:
        """Yield tasks across calls, the earliest due date first, those without a date last."""
        return self._items(Page[TaskLine], "listTasks", filters)

    async def task_page(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[TaskFilters]
    ) -> Page[TaskLine]:
        """Return a page of `tasks`. `next` is the cursor of the next page."""
        parameters = {**filters, "limit": limit, "cursor": cursor}
        return await self._session.ask(Page[TaskLine], "listTasks", parameters)

    def contacts(self, *, text: str | None = None) -> AsyncIterator[ContactLine]:
        """Yield contacts by name. `text`: part of a name, company, e-mail address or number."""
        return self._items(Page[ContactLine], "listContacts", {"text": text})

    def members(self, *, team_id: UUID | str | None = None) -> AsyncIterator[MemberLine]:
        """Yield members by name."""
        return self._items(Page[MemberLine], "listMembers", {"team_id": team_id})

    async def teams(self) -> list[Team]:
        """Return the teams that the key may read, by name."""
        return (await self._session.ask(Page[Team], "listTeams")).items

    async def statistics(self, *, weeks: int = 12, time_zone: str | None = None) -> list[TeamWeek]:
        """Return calls, tone, talk and tasks by team and week, the earliest first."""
        parameters = {"weeks": weeks, "time_zone": time_zone}
        return (await self._session.ask(Page[TeamWeek], "showStatistics", parameters)).items

    async def waveform(self, call_id: UUID | str) -> Waveform:
        """Return the peaks of the recording by channel. Raises `NotReady` before the call is completed."""
        return await self._session.ask(Waveform, "showWaveform", call_id=call_id)

    async def queue(self) -> list[TeamQueue]:
        """Return the queue by team."""
        return (await self._session.ask(Page[TeamQueue], "showQueue")).items

    async def _items(self, kind: type[Any], operation: str, filters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the items of all pages, requesting pages lazily."""
        cursor: str | None = None
        while True:
            page = await self._session.ask(kind, operation, {**filters, "limit": MAX_PAGE, "cursor": cursor})
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return
