"""Gzipped JSON lines: what is kept of measurements, to be scored and fitted again."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Gzipped JSON lines, the same bytes for the same rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """What `write_rows` wrote."""
    return (json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines())
