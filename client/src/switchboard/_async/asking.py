"""What a workspace asks of its calls: its own questions, trackers, and scorecards."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.filters import ScoresBy
from switchboard.models import ScoreWeek, StoredQuestion, StoredScorecard


class AsyncAsking:
    """Reading questions takes the scope `read`; asking and removing them takes `admin` and a key of the workspace."""

    _session: AsyncSession

    async def questions(self) -> list[StoredQuestion]:
        """The questions and trackers that are asked now, in their order."""
        return (await self._session.ask(Page[StoredQuestion], "listQuestions")).items

    async def question_versions(self, key: str) -> list[StoredQuestion]:
        """All versions of a question, the latest first. Raises `NotFound`."""
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
        """Ask a question of the calls that are analyzed from now on; of stored ones by `create_run`.

        `first`, `last`: minutes. `teams`: names or ids. A change is a new version of the key, the same again none.
        Raises `InvalidRequest` with every fault, and `Conflict` where there are too many questions.
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
        """Ask it no more; answers in records stay. Raises `NotFound`."""
        return await self._session.ask(StoredQuestion, "removeQuestion", question_key=key)

    async def scorecards(self) -> list[StoredScorecard]:
        """The scorecards by which calls are scored now, in their order."""
        return (await self._session.ask(Page[StoredScorecard], "listScorecards")).items

    async def scorecard_versions(self, key: str) -> list[StoredScorecard]:
        """All versions of a scorecard, the latest first. Raises `NotFound`."""
        return (await self._session.ask(Page[StoredScorecard], "showScorecard", scorecard_key=key)).items

    async def scores(
        self, key: str, *, by: ScoresBy = "team", weeks: int = 12, time_zone: str | None = None
    ) -> list[ScoreWeek]:
        """Scores by a scorecard, week, and team or member, the earliest week first. `time_zone`: IANA; None: the
        workspace's. Raises `NotFound`."""
        given = {"by": by, "weeks": weeks, "time_zone": time_zone}
        return (await self._session.ask(Page[ScoreWeek], "listScores", given, scorecard_key=key)).items

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
        """Score the calls that are analyzed from now on. `items`: keys of questions, or the fields of an item.

        A change is a new version of the key, the same again none. Raises `InvalidRequest` with every fault.
        """
        body: dict[str, Any] = {
            "key": key,
            "title": title,
            "items": [{"question": one} if isinstance(one, str) else dict(one) for one in items],
            "passMark": pass_mark,
            "outgoing": outgoing,
            "languages": list(languages),
            "teams": list(teams),
        }
        return await self._session.ask(StoredScorecard, "setScorecard", body=body)

    async def remove_scorecard(self, key: str) -> StoredScorecard:
        """Score by it no more; scores in records stay. Raises `NotFound`."""
        return await self._session.ask(StoredScorecard, "removeScorecard", scorecard_key=key)
