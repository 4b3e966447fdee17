"""The version: of this package, and of the service that it was checked against."""

from typing import Final

__version__: Final = "0.1.0"
