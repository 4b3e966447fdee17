"""What people correct on the pages: a turn's words and speaker, the parties, agent and contact, tasks. All of it can be
undone."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from uuid import UUID

from starlette.responses import Response

from db.records import correct as editing
from db.records.correct import EditRefused, Stale, WantedEdit
from db.records.corrections import Editor
from db.records.views import CallRecord
from db.search import people_list
from pipeline.asr.verdicts import REASONS
from pipeline.domain.edits import OTHER_PARTY, EditKind
from pipeline.domain.speech import Turn, Word, text_of
from serve_app.console import sentences
from serve_app.console.call import read, to_edit
from serve_app.console.conversation import Conversation
from serve_app.console.forms import read_form
from serve_app.console.site import NotAllowed, NotFound, NotUnderstood, Visit

MOST_BYTES = 512 * 1024  # of a form: the words of a long turn, before and after
CONTACTS = 12  # that a search shows
MOST_WORDS = 4_000  # characters of one edit
MOST_COMMENT = 2_000  # characters


def editor(visit: Visit) -> Editor:
    """Who writes. Raises `NotAllowed` for a session that may only read."""
    if not visit.viewer.may_edit:
        raise NotAllowed
    return Editor(visit.viewer.key_id, visit.viewer.session_id, visit.viewer.name)


async def turn(visit: Visit) -> Response:
    """One turn; with `edit`, the form that corrects it."""
    if "edit" in visit.request.query_params:
        editor(visit)
        return _form(visit, await read(visit, "transcript"))
    return await _turn(visit, await read(visit, "transcript"))


async def edit_turn(visit: Visit) -> Response:
    """Keep what was changed of a turn, word by word. The form comes back where somebody else was quicker."""
    who = editor(visit)
    form = await read_form(visit.request, MOST_BYTES)
    record = await read(visit, None)
    said = _said(visit, record)
    text, speaker = " ".join(form.get("text", "").split()), form.get("speaker") or said.speaker
    if " ".join(said.text.split()) != " ".join(form.get("old", "").split()) or said.speaker != form.get(
        "was", said.speaker
    ):
        return _form(visit, record, sentences.CHANGED, 409)
    wanted = [*_speaker(said, speaker), *text_edits(said, text)]
    if any(len(str(one.new)) > MOST_WORDS or len(str(one.old)) > MOST_WORDS for one in wanted):
        return _form(visit, record, sentences.TOO_LONG, 400)
    try:
        if wanted:
            await editing.make_all(visit.database, visit.reader, who, visit.id(), wanted)
    except Stale:
        return _form(visit, await read(visit, None), sentences.CHANGED, 409)
    except EditRefused:
        return _form(visit, record, sentences.NOT_KEPT, 400)
    if not visit.request.headers.get("hx-request"):
        return visit.go(f"/calls/{visit.id()}#t={said.start:.2f}")
    return await _turn(visit, await read(visit, None), with_edits=True)


def _said(visit: Visit, record: CallRecord) -> Turn:
    """The turn in the path, as it stands. Raises `NotFound`."""
    number: int = visit.request.path_params["part"]
    if record.transcript is None or number >= len(record.transcript.turns) or not record.transcript.turns[number].words:
        raise NotFound
    return record.transcript.turns[number]


def _speaker(said: Turn, speaker: str) -> Iterator[WantedEdit]:
    if speaker != said.speaker:
        yield WantedEdit(EditKind.SPEAKER, said.speaker, speaker, said.index, said.words[0].start, said.words[-1].end)


def text_edits(said: Turn, text: str) -> Iterator[WantedEdit]:
    """One edit for each run of words that differs; one for all of the turn where spaces do not tell words apart."""
    words, new = said.words, text.split()
    if any(word.joined or word.text.split() != [word.text] for word in words):
        if new != said.text.split():
            yield _text(said, words, text)
        return
    for first, last, begin, end in changes([word.text for word in words], new):
        yield _text(said, words[first:last], " ".join(new[begin:end]))


def _text(said: Turn, words: Sequence[Word], new: str) -> WantedEdit:
    return WantedEdit(EditKind.TEXT, text_of(words), new, said.index, words[0].start, words[-1].end)


def changes(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Runs of `old` that `new` has otherwise, as (first, end, begin, end).

    Each has a word of `old`: what was put in goes with the word before it.
    """
    found: list[tuple[int, int, int, int]] = []
    for what, *place in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            run = _with_a_word(*place)
            if found and found[-1][1] > run[0]:
                before = found.pop()
                run = (before[0], max(before[1], run[1]), before[2], max(before[3], run[3]))
            found.append(run)
    return found


def _with_a_word(first: int, last: int, begin: int, end: int) -> tuple[int, int, int, int]:
    if first < last:
        return first, last, begin, end
    return (first - 1, last, begin - 1, end) if first else (first, last + 1, begin, end + 1)


async def _turn(visit: Visit, record: CallRecord, with_edits: bool = False) -> Response:
    """A turn as it stands; `with_edits`: and the list of edits, which takes the place of the one on the page."""
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
    said, conversation = _said(visit, record), Conversation.of(record)
    assert conversation is not None
    labels = {one.label: conversation.names.get(one.label, one.label) for one in conversation.transcript.speakers}
    return visit.page(
        "_turn_form.html",
        # htmx leaves the page as it is for any refusal; what is wrong stands in the form.
        200 if visit.request.headers.get("hx-request") else status,
        call=record.call,
        turn=said,
        item=conversation.turn(said.index),
        speakers={label: labels.get(label) for label in dict.fromkeys([*labels, *OTHER_PARTY])},
        problem=problem,
    )


async def edit_call(visit: Visit) -> Response:
    """Keep who the agent or the contact was, that the parties are swapped, or an answer; `kind` says which."""
    who = editor(visit)
    form = await read_form(visit.request)
    kind = form.get("kind", "")
    try:
        if kind == "roles":
            wanted = WantedEdit(EditKind.ROLES, form.get("old") == "yes", form.get("new") == "yes")
        elif kind == "answer":
            old, new = (form.get(name) or None for name in ("old", "new"))
            comment = " ".join(form.get("comment", "").split())[:MOST_COMMENT]
            if not comment:
                return visit.problem(sentences.NO_COMMENT, 400)
            wanted = WantedEdit(EditKind.ANSWER, old, new, question=form.get("question"), comment=comment)
        elif kind in ("agent", "contact"):
            old, new = (str(UUID(form[name])) if form.get(name) else None for name in ("old", "new"))
            wanted = WantedEdit(EditKind(kind), old, new)
        else:
            raise NotUnderstood
        if wanted.old != wanted.new:
            await editing.make(visit.database, visit.reader, who, visit.id(), wanted)
    except editing.NoSuch:
        raise NotFound from None
    except Stale:
        return visit.page("problem.html", 409, title=sentences.STALE[0], advice=sentences.STALE[1])
    except editing.CannotBe:
        return visit.problem(sentences.NO_SUCH_ANSWER, 400)
    except (ValueError, EditRefused):
        raise NotUnderstood from None
    return visit.go(f"/calls/{visit.id()}{'#own-questions' if kind == 'answer' else ''}")


async def undo(visit: Visit) -> Response:
    """Take an edit back."""
    who = editor(visit)
    try:
        undone = await editing.undo(visit.database, visit.reader, who, visit.id(), visit.id("edit"))
    except editing.NoSuch:
        raise NotFound from None
    place = f"#t={undone.start:.2f}" if undone.start is not None else ""
    return visit.go(f"/calls/{visit.id()}{place}")


async def contacts(visit: Visit) -> Response:
    """Contacts by a part of their name, number or address, to choose one for a call."""
    record = await read(visit, None)
    text = visit.request.query_params.get("q", "").strip()[:100]
    page = await people_list.list_contacts(visit.database, visit.reader, text or None, None, CONTACTS)
    return visit.page("_contacts.html", call=record.call, record=record, contacts=page.items, searched=text)


async def mark_task(visit: Visit) -> Response:
    """Tick a task off, or take that back."""
    who = editor(visit)
    form = await read_form(visit.request)
    change = editing.tick if form.get("done") == "yes" else editing.untick
    try:
        mark = await change(visit.database, visit.reader, who, visit.id(), visit.id("task"))
    except editing.NoSuch:
        raise NotFound from None
    if visit.request.headers.get("hx-request"):
        title, back = form.get("title", "")[:300], form.get("back", "")
        return visit.page("_ticked.html", call_id=visit.id(), mark=mark, title=title, back=back)
    return visit.go("/tasks" if form.get("back") == "tasks" else f"/calls/{visit.id()}")
