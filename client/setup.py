"""Write the blocking client before setuptools looks for packages. Everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))

import generate

generate.write()
setup()
