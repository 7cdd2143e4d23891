"""Types of tensors and memories, where ttnn has them."""

from tessera.coregrid.memory_config import BufferType, MemoryConfig, ShardOrientation, TensorMemoryLayout

__all__ = ["BufferType", "MemoryConfig", "ShardOrientation", "TensorMemoryLayout"]
