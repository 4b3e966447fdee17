"""Recording -> findings. Knows neither HTTP nor PostgreSQL; `process.py` is the table of contents."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise ONNX Runtime reports models and machine to its maker
if os.environ.get("SWITCHBOARD_EGRESS", "").strip().lower() == "deny":  # before anything of this process connects
    from pipeline.net import egress

    egress.install()
