from pipeline.checkpoints.manifest import Checkpoint, loading
from pipeline.checkpoints.resolve import WHOLE, CheckpointKind, present, resolve

__all__ = ["WHOLE", "Checkpoint", "CheckpointKind", "loading", "present", "resolve"]
