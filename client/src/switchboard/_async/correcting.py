"""What people correct: words, speakers, parties, agent, contact, tasks, answers. A key needs the scope `edit`."""

from uuid import UUID, uuid4

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import (
    AgentEdit,
    AnswerEdit,
    CallEdit,
    CallRecord,
    ContactEdit,
    RolesEdit,
    SpeakerEdit,
    TaskMark,
    TextEdit,
    Turn,
)
from switchboard.words import text_of

Edit = TextEdit | SpeakerEdit | RolesEdit | AgentEdit | ContactEdit | AnswerEdit


class AsyncCorrecting:
    """Each correction says what it saw; where something else stands by now, `StaleEdit` says what.

    A correction whose connection is lost is sent again and made once. What the machine said stays: `version="machine"`.
    """

    _session: AsyncSession

    async def correct_words(
        self, call_id: UUID | str, turn: Turn, new: str, *, first: int = 0, last: int | None = None
    ) -> CallEdit:
        """Say what the words `first` to `last` of a turn are, both included, by default all of them; "" for nothing.

        `turn` is one of the transcript as it was read. Raises `StaleEdit`.
        """
        words = turn.words[first:] if last is None else turn.words[first : last + 1]
        if first < 0 or not words:
            raise ValueError(f"turn {turn.index} has no words {first} to {last}; it has {len(turn.words)}")
        start, end = words[0].start, words[-1].end
        edit = TextEdit(turn=turn.index, start=start, end=end, old=text_of(words), new=new)
        return await self.edit(call_id, edit)

    async def correct_speaker(self, call_id: UUID | str, turn: Turn, new: str) -> CallEdit:
        """Say who said a turn: `rep`, `customer`, or another speaker's label. Raises `StaleEdit`."""
        if not turn.words:
            raise ValueError(f"turn {turn.index} has no words")
        start, end = turn.words[0].start, turn.words[-1].end
        return await self.edit(call_id, SpeakerEdit(turn=turn.index, start=start, end=end, old=turn.speaker, new=new))

    async def correct_parties(self, record: CallRecord, *, swapped: bool) -> CallEdit:
        """Say whether rep and customer are swapped against what the machine said. Raises `StaleEdit`."""
        return await self.edit(record.call.call_id, RolesEdit(old=record.swapped, new=swapped))

    async def correct_agent(self, record: CallRecord, user_id: UUID | str | None) -> CallEdit:
        """Say which member was on our side; None: nobody that is known. Raises `StaleEdit`."""
        return await self.edit(record.call.call_id, AgentEdit(old=record.agent_user_id, new=_id(user_id)))

    async def correct_contact(self, record: CallRecord, contact_id: UUID | str | None) -> CallEdit:
        """Say who the contact was; None: nobody that is known. Raises `StaleEdit`."""
        old = record.contacts[0].contact_id if record.contacts else None
        return await self.edit(record.call.call_id, ContactEdit(old=_id(old), new=_id(contact_id)))

    async def correct_answer(
        self, call_id: UUID | str, question: str, old: str | None, new: str | None, comment: str
    ) -> CallEdit:
        """Answer a question otherwise, by its key, and say why; the call's scores follow. None: nobody says it;
        "n/a": it does not apply; of trackers "said". `old`: as it is shown. Raises `StaleEdit`."""
        return await self.edit(call_id, AnswerEdit(question=question, old=old, new=new, comment=comment))

    async def edit(self, call_id: UUID | str, edit: Edit) -> CallEdit:
        """Make an edit. Without an `edit_id` it gets one, so that it can be sent again. Raises `Conflict`."""
        named = edit if edit.edit_id else edit.model_copy(update={"edit_id": uuid4()})
        body = named.model_dump(mode="json", by_alias=True)
        return await self._session.ask(CallEdit, "editCall", body=body, call_id=call_id)

    async def edits(self, call_id: UUID | str) -> list[CallEdit]:
        """All edits of a call, undone ones too, the earliest first."""
        return (await self._session.ask(Page[CallEdit], "listEdits", call_id=call_id)).items

    async def undo_edit(self, call_id: UUID | str, edit_id: UUID | str) -> CallEdit:
        """Take an edit back; it stays in the list, as undone."""
        return await self._session.ask(CallEdit, "undoEdit", call_id=call_id, edit_id=edit_id)

    async def mark_done(self, call_id: UUID | str, task_id: UUID | str) -> TaskMark:
        """Tick a task off."""
        return await self._session.ask(TaskMark, "markTaskDone", call_id=call_id, task_id=task_id)

    async def unmark_done(self, call_id: UUID | str, task_id: UUID | str) -> TaskMark:
        """Say that a task is to be done after all."""
        return await self._session.ask(TaskMark, "unmarkTask", call_id=call_id, task_id=task_id)


def _id(told: UUID | str | None) -> UUID | None:
    return UUID(told) if isinstance(told, str) else told
