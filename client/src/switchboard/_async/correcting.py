from uuid import UUID, uuid4

from switchboard._async.session import AsyncSession
from switchboard._pages import Page
from switchboard.models import (
    AgentEdit,
    AnswerEdit,
    CallEdit,
    CallRecord,
    CommentEdit,
    ContactEdit,
    RetriedCall,
    RolesEdit,
    SpeakerEdit,
    TagEdit,
    TaskMark,
    TextEdit,
    Turn,
)
from switchboard.words import text_of

Edit = TextEdit | SpeakerEdit | RolesEdit | AgentEdit | ContactEdit | AnswerEdit | TagEdit | CommentEdit


class AsyncCorrecting:
    """Corrections of words, speakers, parties, agent, contact, tasks and answers, tags and comments. Scope: `edit`.

    A correction contains the value that it replaces; if that has changed, it raises `StaleEdit` with the current value.
    Retries are idempotent. The results of the machine remain available with `version="machine"`.
    """

    _session: AsyncSession

    async def correct_words(
        self, call_id: UUID | str, turn: Turn, new: str, *, first: int = 0, last: int | None = None
    ) -> CallEdit:
        """Replace the words `first` to `last` (inclusive) of a turn, by default all of them; "" deletes them.

        `turn`: from the transcript that was read. Raises `StaleEdit`.
        """
        words = turn.words[first:] if last is None else turn.words[first : last + 1]
        if first < 0 or not words:
            raise ValueError(f"turn {turn.index} has no words {first} to {last}; it has {len(turn.words)}")
        start, end = words[0].start, words[-1].end
        edit = TextEdit(turn=turn.index, start=start, end=end, old=text_of(words), new=new)
        return await self.edit(call_id, edit)

    async def correct_speaker(self, call_id: UUID | str, turn: Turn, new: str) -> CallEdit:
        """Set the speaker of a turn: `rep`, `customer` or another speaker label. Raises `StaleEdit`."""
        if not turn.words:
            raise ValueError(f"turn {turn.index} has no words")
        start, end = turn.words[0].start, turn.words[-1].end
        return await self.edit(call_id, SpeakerEdit(turn=turn.index, start=start, end=end, old=turn.speaker, new=new))

    async def correct_parties(self, record: CallRecord, *, swapped: bool) -> CallEdit:
        """Set whether rep and customer are swapped compared to the machine's result. Raises `StaleEdit`."""
        return await self.edit(record.call.call_id, RolesEdit(old=record.swapped, new=swapped))

    async def correct_agent(self, record: CallRecord, user_id: UUID | str | None) -> CallEdit:
        """Set the agent; None: unknown. Raises `StaleEdit`."""
        return await self.edit(record.call.call_id, AgentEdit(old=record.agent_user_id, new=_id(user_id)))

    async def correct_contact(self, record: CallRecord, contact_id: UUID | str | None) -> CallEdit:
        """Set the contact; None: unknown. Raises `StaleEdit`."""
        old = record.contacts[0].contact_id if record.contacts else None
        return await self.edit(record.call.call_id, ContactEdit(old=_id(old), new=_id(contact_id)))

    async def correct_answer(
        self, call_id: UUID | str, question: str, old: str | None, new: str | None, comment: str
    ) -> CallEdit:
        """Correct the answer to a question, with the reason; scores are updated. None: not said; "n/a": not
        applicable; "said" for trackers. `old`: the current answer. Raises `StaleEdit`."""
        return await self.edit(call_id, AnswerEdit(question=question, old=old, new=new, comment=comment))

    async def add_tag(self, call_id: UUID | str, tag: str) -> CallEdit:
        """Give a call a tag, stored in lower case; idempotent. Undo the edit to remove it."""
        return await self.edit(call_id, TagEdit(new=tag))

    async def add_comment(self, call_id: UUID | str, comment: str) -> CallEdit:
        """Comment on a call. Undo the edit to remove the comment."""
        return await self.edit(call_id, CommentEdit(comment=comment))

    async def edit(self, call_id: UUID | str, edit: Edit) -> CallEdit:
        """Create an edit; without an `edit_id` it gets a new one. Raises `Conflict`."""
        edit_with_id = edit if edit.edit_id else edit.model_copy(update={"edit_id": uuid4()})
        body = edit_with_id.model_dump(mode="json", by_alias=True)
        return await self._session.ask(CallEdit, "editCall", body=body, call_id=call_id)

    async def edits(self, call_id: UUID | str) -> list[CallEdit]:
        """Return the edits of a call, including undone ones, the earliest first."""
        return (await self._session.ask(Page[CallEdit], "listEdits", call_id=call_id)).items

    async def undo_edit(self, call_id: UUID | str, edit_id: UUID | str) -> CallEdit:
        """Undo an edit; it stays in the list as undone."""
        return await self._session.ask(CallEdit, "undoEdit", call_id=call_id, edit_id=edit_id)

    async def delete_call(self, call_id: UUID | str) -> None:
        """Delete a call permanently, with its recordings and results; needs the scope `admin`. Idempotent.

        Raises `NotFound` for an unknown call.
        """
        await self._session.do("deleteCall", call_id=call_id)

    async def retry(self, call_id: UUID | str) -> RetriedCall:
        """Process a failed call again, or try a waiting one now. Raises `Conflict` if there is nothing to retry."""
        return await self._session.ask(RetriedCall, "retryCall", call_id=call_id)

    async def mark_done(self, call_id: UUID | str, task_id: UUID | str) -> TaskMark:
        """Mark a task as done."""
        return await self._session.ask(TaskMark, "markTaskDone", call_id=call_id, task_id=task_id)

    async def unmark_done(self, call_id: UUID | str, task_id: UUID | str) -> TaskMark:
        """Reopen a task."""
        return await self._session.ask(TaskMark, "unmarkTask", call_id=call_id, task_id=task_id)


def _id(value: UUID | str | None) -> UUID | None:
    return UUID(value) if isinstance(value, str) else value
