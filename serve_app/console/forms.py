"""What a form sent, read with a bound."""

from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

MOST_BYTES = 16 * 1024
MOST_FIELDS = 50


class FormRefused(Exception):
    """The body is no form, or too large for one of ours."""


async def read_form(request: Request, most: int = MOST_BYTES, fields: int = MOST_FIELDS) -> dict[str, str]:
    """The fields of a URL-encoded form of at most so many bytes and fields; of several with one name the last. Raises
    `FormRefused`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormRefused
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise FormRefused
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=fields))
    except (ValueError, ClientDisconnect):
        raise FormRefused from None
