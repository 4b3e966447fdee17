from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet


class AsyncCalibrating:
    """Calibrations: several reviewers answer a scorecard on the same calls, independently.

    Reads need the scope `read`, reviewing `edit`, other operations `admin`. A reviewer is a key.
    """

    _session: AsyncSession

    async def create_calibration(self, name: str, scorecard: str, call_ids: Sequence[UUID | str]) -> Calibration:
        """Create a calibration of 1 to 100 completed calls by the current version of a scorecard.

        Raises `InvalidRequest`, and `Conflict` if the name is in use.
        """
        calls = [str(call_id) for call_id in call_ids]
        body = {"idempotencyKey": str(uuid4()), "name": name, "scorecard": scorecard, "callIds": calls}
        return await self._session.ask(Calibration, "createCalibration", body=body)

    async def calibrations(self) -> list[Calibration]:
        """Return the calibrations, the latest first."""
        return (await self._session.ask(Page[Calibration], "listCalibrations")).items

    async def review_sheet(self, calibration_id: UUID | str) -> ReviewSheet:
        """Return the questions with the answers of this key. Raises `NotFound`."""
        return await self._session.ask(ReviewSheet, "showCalibration", calibration_id=calibration_id)

    async def review_call(
        self, calibration_id: UUID | str, call_id: UUID | str, answers: Mapping[str, str | None]
    ) -> CalibrationCall:
        """Answer questions of a call by key: "said" for trackers, None: not said, "n/a": not applicable.

        Raises `InvalidRequest` for invalid answers, and `Conflict` once the review is submitted or closed.
        """
        body = {"answers": dict(answers)}
        return await self._session.ask(
            CalibrationCall, "reviewCall", body=body, calibration_id=calibration_id, call_id=call_id
        )

    async def hand_in_review(self, calibration_id: UUID | str) -> ReviewSheet:
        """Submit the review; answers cannot be changed afterwards. Raises `Conflict` if a question is unanswered."""
        return await self._session.ask(ReviewSheet, "handInReview", calibration_id=calibration_id)

    async def agreement(self, calibration_id: UUID | str) -> CalibrationAgreement:
        """Return the agreement of reviewers. Raises `Conflict` before this key submits, while it is open."""
        return await self._session.ask(CalibrationAgreement, "showAgreement", calibration_id=calibration_id)

    async def close_calibration(self, calibration_id: UUID | str) -> Calibration:
        """Close a calibration and show its result to all reviewers."""
        return await self._session.ask(Calibration, "closeCalibration", calibration_id=calibration_id)

    async def delete_calibration(self, calibration_id: UUID | str) -> Calibration:
        """Delete a calibration with its reviews; calls are kept. Raises `NotFound`."""
        return await self._session.ask(Calibration, "deleteCalibration", calibration_id=calibration_id)
