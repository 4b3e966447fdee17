"""Python imports this at its start in every process of a service, also in those of Ray that import nothing of ours."""

import pipeline  # noqa: F401  (guards connections if SWITCHBOARD_EGRESS=deny)
from serve_app.service import spared_imports

spared_imports.install()
