"""Calibrations: reviewers answer a scorecard on the same calls, each for themselves."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet


class AsyncCalibrating:
    """Reading takes the scope `read`, reviewing `edit`, the rest `admin`, of a workspace. A reviewer is a key."""

    _session: AsyncSession

    async def create_calibration(self, name: str, scorecard: str, call_ids: Sequence[UUID | str]) -> Calibration:
        """A calibration of 1 to 100 completed calls by a scorecard as it is now.

        Raises `InvalidRequest`, and `Conflict` where the name is taken.
        """
        calls = [str(one) for one in call_ids]
        body = {"calibrationId": str(uuid4()), "name": name, "scorecard": scorecard, "callIds": calls}
        return await self._session.ask(Calibration, "createCalibration", body=body)

    async def calibrations(self) -> list[Calibration]:
        """All calibrations, the latest first."""
        return (await self._session.ask(Page[Calibration], "listCalibrations")).items

    async def review_sheet(self, calibration_id: UUID | str) -> ReviewSheet:
        """What there is to answer, and what this key has answered; nothing of others. Raises `NotFound`."""
        return await self._session.ask(ReviewSheet, "showCalibration", calibration_id=calibration_id)

    async def review_call(
        self, calibration_id: UUID | str, call_id: UUID | str, answers: Mapping[str, str | None]
    ) -> CalibrationCall:
        """Answer questions of a call, by key: "said" of trackers, None: nobody says it, "n/a": not applicable.

        Raises `InvalidRequest` for what cannot be the answer, and `Conflict` once it is handed in or closed.
        """
        body = {"answers": dict(answers)}
        return await self._session.ask(
            CalibrationCall, "reviewCall", body=body, calibration_id=calibration_id, call_id=call_id
        )

    async def hand_in_review(self, calibration_id: UUID | str) -> ReviewSheet:
        """Hand in: the answers stay as they are. Raises `Conflict` while a question is not answered."""
        return await self._session.ask(ReviewSheet, "handInReview", calibration_id=calibration_id)

    async def agreement(self, calibration_id: UUID | str) -> CalibrationAgreement:
        """How far those agree who handed in. Raises `Conflict` before this key has, while it is open."""
        return await self._session.ask(CalibrationAgreement, "showAgreement", calibration_id=calibration_id)

    async def close_calibration(self, calibration_id: UUID | str) -> Calibration:
        """Take no more reviews, and show what came of it to all."""
        return await self._session.ask(Calibration, "closeCalibration", calibration_id=calibration_id)

    async def delete_calibration(self, calibration_id: UUID | str) -> Calibration:
        """Remove it with its reviews; calls stay. Raises `NotFound`."""
        return await self._session.ask(Calibration, "deleteCalibration", calibration_id=calibration_id)
