"""Recording -> findings. Knows neither HTTP nor PostgreSQL; `process.py` is the table of contents."""

import os

if os.environ.get("SWITCHBOARD_EGRESS", "").strip().lower() == "deny":  # before anything of this process connects
    from pipeline.net import egress

    egress.install()
