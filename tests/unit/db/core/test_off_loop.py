import threading

from db.core.off_loop import SHORT, off_loop


async def test_only_long_work_is_left_to_a_thread() -> None:
    here = threading.get_ident()
    assert await off_loop(SHORT, threading.get_ident) == here
    assert await off_loop(SHORT + 1, threading.get_ident) != here
