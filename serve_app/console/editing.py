"""Manual corrections: text and speaker of a turn, roles, agent and contact, answers, tasks. All can be undone."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from uuid import UUID

from starlette.responses import Response

from db.records import correct as editing
from db.records.correct import EditConflict, EditRefused, WantedEdit
from db.records.corrections import Editor
from db.records.views import CallRecord
from db.search import people_list
from pipeline.asr.verdicts import REASONS
from pipeline.domain.edits import NOTES, OTHER_PARTY, EditKind
from pipeline.domain.speech import Turn, Word, text_of
from serve_app.console import sentences
from serve_app.console.call import read, to_edit
from serve_app.console.conversation import Conversation
from serve_app.console.site import MAX_LONG_FORM_BYTES, NotAllowed, NotFound, NotUnderstood, Visit, read_form

MAX_CONTACTS = 12
MAX_EDIT_LENGTH = 4_000  # characters of one edit
MAX_COMMENT_LENGTH = 2_000  # characters
MAX_TAG_LENGTH = 100


def editor(visit: Visit) -> Editor:
    """Return the author of edits. Raises `NotAllowed` for a read-only session."""
    if not visit.viewer.may_edit:
        raise NotAllowed
    return Editor(visit.viewer.key_id, visit.viewer.session_id, visit.viewer.name)


async def turn(visit: Visit) -> Response:
    """Render a turn; with `edit`, its form."""
    if "edit" in visit.request.query_params:
        editor(visit)
        return _form(visit, await read(visit, "transcript"))
    return await _turn(visit, await read(visit, "transcript"))


async def edit_turn(visit: Visit) -> Response:
    """Save the changed words of a turn. The form is shown again if the turn changed in the meantime."""
    who = editor(visit)
    form = await read_form(visit.request, MAX_LONG_FORM_BYTES)
    record = await read(visit, None)
    current = _current_turn(visit, record)
    text, speaker = " ".join(form.get("text", "").split()), form.get("speaker") or current.speaker
    if " ".join(current.text.split()) != " ".join(form.get("old", "").split()) or current.speaker != form.get(
        "was", current.speaker
    ):
        return _form(visit, record, sentences.CHANGED, 409)
    edits = [*_speaker(current, speaker), *text_edits(current, text)]
    if any(len(str(edit.new)) > MAX_EDIT_LENGTH or len(str(edit.old)) > MAX_EDIT_LENGTH for edit in edits):
        return _form(visit, record, sentences.TOO_LONG, 400)
    try:
        if edits:
            await editing.make_all(visit.database, visit.reader, who, visit.id(), edits)
    except EditConflict:
        return _form(visit, await read(visit, None), sentences.CHANGED, 409)
    except EditRefused:
        return _form(visit, record, sentences.NOT_KEPT, 400)
    if not visit.request.headers.get("hx-request"):
        return visit.go(f"/calls/{visit.id()}#t={current.start:.2f}")
    return await _turn(visit, await read(visit, None), with_edits=True)


def _current_turn(visit: Visit, record: CallRecord) -> Turn:
    """Return the current turn in the path. Raises `NotFound`."""
    number: int = visit.request.path_params["part"]
    if record.transcript is None or number >= len(record.transcript.turns) or not record.transcript.turns[number].words:
        raise NotFound
    return record.transcript.turns[number]


def _speaker(current: Turn, speaker: str) -> Iterator[WantedEdit]:
    if speaker != current.speaker:
        yield WantedEdit(
            EditKind.SPEAKER, current.speaker, speaker, current.index, current.words[0].start, current.words[-1].end
        )


def text_edits(current: Turn, text: str) -> Iterator[WantedEdit]:
    """Yield an edit per run of changed words; one for the whole turn if spaces do not separate its words."""
    words, new = current.words, text.split()
    if any(word.joined or word.text.split() != [word.text] for word in words):
        if new != current.text.split():
            yield _text(current, words, text)
        return
    for first, last, begin, end in changes([word.text for word in words], new):
        yield _text(current, words[first:last], " ".join(new[begin:end]))


def _text(current: Turn, words: Sequence[Word], new: str) -> WantedEdit:
    return WantedEdit(EditKind.TEXT, text_of(words), new, current.index, words[0].start, words[-1].end)


def changes(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the runs in which `old` and `new` differ, as (first, end, begin, end).

    Each run has a word of `old`: an insertion is attached to the word before it.
    """
    runs: list[tuple[int, int, int, int]] = []
    for what, *place in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            run = _with_a_word(*place)
            if runs and runs[-1][1] > run[0]:
                before = runs.pop()
                run = (before[0], max(before[1], run[1]), before[2], max(before[3], run[3]))
            runs.append(run)
    return runs


def _with_a_word(first: int, last: int, begin: int, end: int) -> tuple[int, int, int, int]:
    if first < last:
        return first, last, begin, end
    return (first - 1, last, begin - 1, end) if first else (first, last + 1, begin, end + 1)


async def _turn(visit: Visit, record: CallRecord, with_edits: bool = False) -> Response:
    """Render the current turn; `with_edits`: also the list of edits, which htmx swaps into the page."""
    conversation = Conversation.of(record)
    number = visit.request.path_params["part"]
    if conversation is None or number >= len(conversation.transcript.turns):
        raise NotFound
    item = conversation.turn(number)
    return visit.page(
        "_one_turn.html",
        conversation=conversation,
        item=item,
        reasons=REASONS,
        call=record.call,
        record=record,
        with_edits=with_edits,
        **(await to_edit(visit, record) if with_edits else {}),
    )


def _form(visit: Visit, record: CallRecord, problem: str | None = None, status: int = 200) -> Response:
    current, conversation = _current_turn(visit, record), Conversation.of(record)
    assert conversation is not None
    labels = {
        speaker.label: conversation.names.get(speaker.label, speaker.label)
        for speaker in conversation.transcript.speakers
    }
    return visit.page(
        "_turn_form.html",
        # htmx does not swap error responses; the form shows the problem.
        200 if visit.request.headers.get("hx-request") else status,
        call=record.call,
        turn=current,
        item=conversation.turn(current.index),
        speakers={label: labels.get(label) for label in dict.fromkeys([*labels, *OTHER_PARTY])},
        problem=problem,
    )


async def edit_call(visit: Visit) -> Response:
    """Save the agent, the contact, swapped roles, an answer, a tag or a comment, by `kind`."""
    who = editor(visit)
    form = await read_form(visit.request)
    try:
        edit = _requested(form)
        if edit.old != edit.new or edit.kind in NOTES:
            await editing.make(visit.database, visit.reader, who, visit.id(), edit)
    except _Incomplete as error:
        return visit.problem(error.sentence, 400)
    except editing.NotFound:
        raise
    except EditConflict:
        return visit.problem(sentences.STALE, 409)
    except editing.InvalidEdit:
        return visit.problem(sentences.NO_SUCH_ANSWER, 400)
    except (ValueError, EditRefused):
        raise NotUnderstood from None
    place = "#questions" if edit.kind is EditKind.ANSWER else "#notes" if edit.kind in NOTES else ""
    return visit.go(f"/calls/{visit.id()}{place}")


class _Incomplete(Exception):
    """A text is missing in the form; `sentence` says which."""

    def __init__(self, sentence: tuple[str, str]) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def _requested(form: Mapping[str, str]) -> WantedEdit:
    """Return the edit of a form. Raises `_Incomplete` and ValueError."""
    kind = EditKind(form.get("kind", ""))
    comment = form.get("comment", "").strip()[:MAX_COMMENT_LENGTH]
    if kind in (EditKind.ANSWER, EditKind.COMMENT) and not comment:
        raise _Incomplete(sentences.NO_COMMENT if kind is EditKind.ANSWER else sentences.EMPTY_COMMENT)
    if kind is EditKind.COMMENT:
        return WantedEdit(kind, None, None, comment=comment)
    if kind is EditKind.TAG:
        tag = editing.tag_of(form.get("new", "").replace(",", " "))
        if not 0 < len(tag) <= MAX_TAG_LENGTH:
            raise ValueError("no usable tag")
        return WantedEdit(kind, None, tag)
    if kind is EditKind.ROLES:
        return WantedEdit(kind, form.get("old") == "yes", form.get("new") == "yes")
    old, new = (form.get(name) or None for name in ("old", "new"))
    if kind is EditKind.ANSWER:
        return WantedEdit(kind, old, new, question=form.get("question"), comment=" ".join(comment.split()))
    if kind not in (EditKind.AGENT, EditKind.CONTACT):
        raise ValueError("no edit of a whole call")
    return WantedEdit(kind, _id(old), _id(new))


def _id(value: str | None) -> str | None:
    return str(UUID(value)) if value else None


async def undo(visit: Visit) -> Response:
    who = editor(visit)
    undone = await editing.undo(visit.database, visit.reader, who, visit.id(), visit.id("edit"))
    place = f"#t={undone.start:.2f}" if undone.start is not None else ""
    return visit.go(f"/calls/{visit.id()}{place}")


async def contacts(visit: Visit) -> Response:
    """Render contacts that match a part of a name, number or email address."""
    record = await read(visit, None)
    text = visit.request.query_params.get("text", "").strip()[:100]
    page = await people_list.list_contacts(visit.database, visit.reader, text or None, None, MAX_CONTACTS)
    return visit.page("_contacts.html", call=record.call, record=record, contacts=page.items, searched=text)


async def mark_task(visit: Visit) -> Response:
    who = editor(visit)
    form = await read_form(visit.request)
    change = editing.tick if form.get("done") == "yes" else editing.untick
    mark = await change(visit.database, visit.reader, who, visit.id(), visit.id("task"))
    if visit.request.headers.get("hx-request"):
        title, back = form.get("title", "")[:300], form.get("back", "")
        return visit.page("_ticked.html", call_id=visit.id(), mark=mark, title=title, back=back)
    return visit.go("/tasks" if form.get("back") == "tasks" else f"/calls/{visit.id()}")
