from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack
from uuid import UUID

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.filters import CallFilters, ScoresBy, query
from switchboard.models import CallsAnswer, ScoreWeek, StoredQuestion, StoredScorecard

ANSWER_SECONDS = 30.0  # the service answers a question within 25 s


class AsyncAsking:
    """Questions about calls, and those of the workspace, trackers and scorecards.

    Reads need the scope `read`, writes `admin` and a key of the workspace.
    """

    _session: AsyncSession

    async def ask(
        self, question: str, /, *, call_ids: Sequence[UUID | str] = (), **filters: Unpack[CallFilters]
    ) -> CallsAnswer:
        """Return the answer to a question about the matching calls, with the quotes that support it.

        `answer` is None if nothing supports one. Raises `Conflict` without a language model or budget, `NoSuchCall`,
        and `NoModelAnswer`.
        """
        matching = query(filters, frozenset(CallFilters.__annotations__))
        body = {"question": question, "filters": matching, "callIds": [str(call_id) for call_id in call_ids]}
        seconds = max(self._session.timeout, ANSWER_SECONDS)
        return await self._session.ask(CallsAnswer, "askCalls", body=body, seconds=seconds, read=ANSWER_SECONDS)

    async def questions(self) -> list[StoredQuestion]:
        """Return the current questions and trackers in order."""
        return (await self._session.ask(Page[StoredQuestion], "listQuestions")).items

    async def question_versions(self, key: str) -> list[StoredQuestion]:
        """Return the versions of a question, the latest first. Raises `NotFound`."""
        return (await self._session.ask(Page[StoredQuestion], "showQuestion", question_key=key)).items

    async def set_question(
        self,
        key: str,
        question: str = "",
        *,
        type: Literal["yes/no", "choice", "number", "text", "date", "tracker"] = "yes/no",
        phrases: Sequence[str] = (),
        unless: Sequence[str] = (),
        choices: Mapping[str, Sequence[str]] | None = None,
        party: Literal["rep", "customer", "anyone"] = "anyone",
        first: float | None = None,
        last: float | None = None,
        outgoing: bool | None = None,
        languages: Sequence[str] = (),
        teams: Sequence[str] = (),
        required: bool = False,
        weight: float = 1.0,
    ) -> StoredQuestion:
        """Create or update a question for new calls; use `create_run` for stored calls.

        `first`, `last`: minutes. `outgoing`: outbound or inbound calls only. `teams`: names or ids. A change creates
        a new version. Raises `InvalidRequest` with every fault, and `Conflict` if there are too many questions.
        """
        body: dict[str, Any] = {
            "key": key,
            "question": question,
            "type": type,
            "phrases": list(phrases),
            "unless": list(unless),
            "choices": {name: list(words) for name, words in (choices or {}).items()},
            "party": party,
            "first": first,
            "last": last,
            "outgoing": outgoing,
            "languages": list(languages),
            "teams": list(teams),
            "required": required,
            "weight": weight,
        }
        return await self._session.ask(StoredQuestion, "setQuestion", body=body)

    async def remove_question(self, key: str) -> StoredQuestion:
        """Delete a question; existing answers are kept. Raises `NotFound`."""
        return await self._session.ask(StoredQuestion, "removeQuestion", question_key=key)

    async def scorecards(self) -> list[StoredScorecard]:
        """Return the current scorecards in order."""
        return (await self._session.ask(Page[StoredScorecard], "listScorecards")).items

    async def scorecard_versions(self, key: str) -> list[StoredScorecard]:
        """Return the versions of a scorecard, the latest first. Raises `NotFound`."""
        return (await self._session.ask(Page[StoredScorecard], "showScorecard", scorecard_key=key)).items

    async def scores(
        self, key: str, *, by: ScoresBy = "team", weeks: int = 12, time_zone: str | None = None
    ) -> list[ScoreWeek]:
        """Return scores by week and team or member, the earliest week first. `time_zone`: IANA; None: that of the
        workspace. Raises `NotFound`."""
        parameters = {"by": by, "weeks": weeks, "time_zone": time_zone}
        return (await self._session.ask(Page[ScoreWeek], "listScores", parameters, scorecard_key=key)).items

    async def set_scorecard(
        self,
        key: str,
        title: str,
        items: Sequence[str | Mapping[str, Any]],
        *,
        pass_mark: float | None = None,
        outgoing: bool | None = None,
        languages: Sequence[str] = (),
        teams: Sequence[str] = (),
    ) -> StoredScorecard:
        """Create or update a scorecard for new calls. `items`: keys of questions, or the fields of an item.

        A change creates a new version. Raises `InvalidRequest` with every fault.
        """
        body: dict[str, Any] = {
            "key": key,
            "title": title,
            "items": [{"question": item} if isinstance(item, str) else dict(item) for item in items],
            "passMark": pass_mark,
            "outgoing": outgoing,
            "languages": list(languages),
            "teams": list(teams),
        }
        return await self._session.ask(StoredScorecard, "setScorecard", body=body)

    async def remove_scorecard(self, key: str) -> StoredScorecard:
        """Delete a scorecard; existing scores are kept. Raises `NotFound`."""
        return await self._session.ask(StoredScorecard, "removeScorecard", scorecard_key=key)
