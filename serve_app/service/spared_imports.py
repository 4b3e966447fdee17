"""Spares the processes of a service what Ray Serve imports on the chance that a response has a pandas table.

pandas takes 40 MB in each process, and this service sends no such table: to Ray Serve it is not installed. Every other
module imports it as usual.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

AT_START = Path(__file__).parent / "at_start"  # in PYTHONPATH it applies this in any Python process
SPARED, IMPORTER = "pandas", "ray.serve._private.utils"


class _Refusal(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == SPARED and _importer() == IMPORTER:
            raise ModuleNotFoundError(f"{SPARED} is spared in processes of a service", name=SPARED)
        return None


def install() -> None:
    """Refuse the import to Ray Serve in this process from now on."""
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())


def _importer() -> str:
    """Return the name of the module whose import statement is being executed."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))
