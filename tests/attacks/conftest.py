"""Fixtures of the attacks on readers."""

from tests.reading_api import api, base  # noqa: F401
