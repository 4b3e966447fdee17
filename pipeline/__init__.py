"""Recording -> findings. Knows neither HTTP nor PostgreSQL; `process.py` is the table of contents."""

from pipeline.net import egress

if egress.is_denied():  # in each process of the service, before it can connect to anything
    egress.install()
