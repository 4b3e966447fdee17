"""OpenAPI 3.1 documents of /submit and the API, from their routes, models and refusals.

`make generate` writes both. The API serves its document; that of /submit is only a file.
"""

from serve_app.openapi.api import api_document
from serve_app.openapi.submit import submit_document

__all__ = ["api_document", "submit_document"]
