"""From a model's name to a folder with its files: a path, the hub's cache, the hub."""

from pipeline.checkpoints.loading import loading
from pipeline.checkpoints.manifest import Checkpoint
from pipeline.checkpoints.resolve import WHOLE, CheckpointKind, present, resolve

__all__ = ["WHOLE", "Checkpoint", "CheckpointKind", "loading", "present", "resolve"]
