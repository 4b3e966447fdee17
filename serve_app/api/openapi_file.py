"""Serves openapi.json, without a key: it says nothing that the repository does not."""

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FILE = Path(__file__).with_name("openapi.json")


@cache
def _text() -> bytes:
    return FILE.read_bytes()


async def show(_: Request) -> Response:
    """Serve the contract of the API."""
    return Response(_text(), media_type="application/json", headers={"Cache-Control": "public, max-age=3600"})
