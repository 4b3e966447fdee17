from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import LegalHold, RetentionPeriod, StoredPolicy

Content = Literal["recordings", "transcripts", "voiceprints", "submissions", "events", "access_log", "calls"]


class AsyncRetaining:
    """Retention periods, policies of redaction and legal holds: for workspace keys with the scope `admin`."""

    _session: AsyncSession

    async def retention(self) -> list[RetentionPeriod]:
        """Return the periods of the workspace and its teams; what has none is stored without limit."""
        return (await self._session.ask(Page[RetentionPeriod], "listRetention")).items

    async def set_retention(
        self, kind: Content, days: int | None, *, team_id: UUID | str | None = None
    ) -> list[RetentionPeriod]:
        """Set the days after which content is deleted, and return all periods.

        `team_id`: only for this team. `days`: None removes the period; a team then has that of the workspace.
        """
        body: dict[str, Any] = {"kind": kind, "days": days, "teamId": None if team_id is None else str(team_id)}
        return (await self._session.ask(Page[RetentionPeriod], "setRetention", body=body)).items

    async def redaction(self) -> list[StoredPolicy]:
        """Return the policies of redaction of the workspace and its teams; without one nothing is hidden."""
        return (await self._session.ask(Page[StoredPolicy], "listRedaction")).items

    async def set_redaction(
        self,
        mode: Literal["off", "mask", "redacted-only"] | None,
        *,
        presets: Sequence[Literal["pci", "privacy", "health"]] = (),
        kinds: Sequence[str] = (),
        team_id: UUID | str | None = None,
        **more: Any,
    ) -> list[StoredPolicy]:
        """Set what is hidden in calls processed from now on, and return all policies.

        `mode`: None removes the policy; a team then has that of the workspace. `more`: further fields of the body, such
        as `lastDigits`. Raises `InvalidRequest`.
        """
        body: dict[str, Any] = {"mode": mode, "presets": [*presets], "kinds": [*kinds], **more}
        body["teamId"] = None if team_id is None else str(team_id)
        return (await self._session.ask(Page[StoredPolicy], "setRedaction", body=body)).items

    async def holds(self) -> list[LegalHold]:
        """Return the legal holds, including released ones, the latest first."""
        return (await self._session.ask(Page[LegalHold], "listHolds")).items

    async def create_hold(
        self, kind: Literal["call", "number", "contact"], subject: UUID | str, reason: str
    ) -> LegalHold:
        """Set a legal hold: the calls that it covers, also later ones, are neither erased nor deleted by retention.

        `subject`: callId, number or contactId. Idempotent. Raises `InvalidRequest`.
        """
        body = {"kind": kind, "subject": str(subject), "reason": reason}
        return await self._session.ask(LegalHold, "createHold", body=body)

    async def release_hold(self, hold_id: UUID | str) -> LegalHold:
        """Release a legal hold. Idempotent. Raises `NotFound`."""
        return await self._session.ask(LegalHold, "releaseHold", hold_id=hold_id)
