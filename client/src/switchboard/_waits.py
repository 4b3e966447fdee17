"""Pauses, for both clients: `_sync` is made of `_async` with the second name in place of the first."""

import asyncio
from time import sleep

async_sleep = asyncio.sleep

__all__ = ["async_sleep", "sleep"]
