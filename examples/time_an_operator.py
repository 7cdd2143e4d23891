"""Time one operator with the sampler that all benchmarks of Tessera use."""

import torch

import tessera

torch.set_num_threads(1)
x = torch.randn(256, 256)

timing = tessera.time(lambda: torch.relu(x))
print(f"relu of 256 x 256: {timing}")
print(f"{timing.samples.loops} calls per sample, stopped by {timing.samples.stopped_by}")
