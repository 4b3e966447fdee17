"""Decoding in a process of its own, which holds no secret and can do nothing but read one file and write one pipe.

`runner` starts it and reads what it says, `child` is what runs in it, `jail` takes its rights away, `wire` is their
language. The child imports numpy, PyAV, soxr and a few small modules of this package, and nothing else.
"""
