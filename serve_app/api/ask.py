from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field
from starlette.responses import Response

from db.core.database import Reader
from db.search import semantic
from serve_app.answers.asking import MAX_CALLS, BudgetSpent, CallsAnswer, ModelFailed, ModelOff
from serve_app.api.access import ApiRequest, Route, answer_with, with_times
from serve_app.api.bodies import Id, read_admin_body, tidy
from serve_app.api.errors import Busy, LanguageModelFailed, LanguageModelOff, ModelBudgetSpent, NoSuchCall, TooSlow
from serve_app.api.queries import CallQuery, NoQuery
from serve_app.http.auth import READ
from serve_app.http.json_body import Body
from serve_app.http.options import Work
from serve_app.records.query_embedding import EmbedderNotReady

MAX_QUESTION = 500  # characters


class AskBody(Body):
    """A question, and the calls that it is about."""

    question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION), AfterValidator(tidy)] = Field(
        description="In any language; the answer has the same."
    )
    filters: CallQuery = Field(
        default=CallQuery(), description="Filters of calls, as in the list of calls. Unset: all calls."
    )
    call_ids: list[Id] = Field(
        default=[], max_length=MAX_CALLS, description="Only these calls, of those that match the filters."
    )


async def ask_calls(reading: ApiRequest[NoQuery]) -> Response:
    body = await read_admin_body(reading.request, AskBody)
    reader = replace(reading.reader, seconds=reading.options.SEARCH_SECONDS)
    filters = (await with_times(reading.database, body.filters, reading.home)).to_filter()
    call_ids = tuple(dict.fromkeys(body.call_ids))
    await _check_visible(reading, reader, call_ids)

    async def note(read_calls: Sequence[UUID]) -> None:
        await reading.note("transcript", read_calls, "ask")

    retry = reading.options.RETRY_AFTER_SECONDS
    try:
        filters = replace(filters, call_ids=call_ids)
        asker, seconds = reading.tools.asker, reading.options.ASK_SECONDS
        return answer_with(await asker.ask(reader, body.question, filters, note, seconds))
    except ModelOff:
        raise LanguageModelOff from None
    except ModelFailed as error:
        raise LanguageModelFailed(str(error)) from None
    except BudgetSpent as error:
        raise ModelBudgetSpent(str(error)) from None
    except EmbedderNotReady as error:
        raise Busy(retry, str(error)) from None
    except TimeoutError:
        raise TooSlow(retry) from None


async def _check_visible(reading: ApiRequest[NoQuery], reader: Reader, call_ids: Sequence[UUID]) -> None:
    if call_ids and (missing := await semantic.missing(reading.database, reader, call_ids)):
        raise NoSuchCall(f"callIds: {', '.join(map(str, missing))} not found, or not visible to this key.")


ROUTES = (
    Route(
        "/ask",
        ask_calls,
        "Answer a question about calls from quoted turns, with the language model",
        CallsAnswer,
        work=Work.ASK,
        method="POST",
        body=AskBody,
        needs=READ,
    ),
)
