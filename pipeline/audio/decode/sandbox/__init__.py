"""Decoding in a separate process, which has no secrets and can do nothing but read one file and write one pipe.

`runner` starts it and reads its messages, `child` is its program, `jail` drops its privileges, `wire` is the message
format. The child imports only numpy, PyAV, soxr and a few small modules of this package.
"""
