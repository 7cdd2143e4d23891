"""Time one operator with the sampler that every figure of Tessera comes from."""

import torch

from tessera.measure.sampler import sample
from tessera.measure.statistics import median_interval

torch.set_num_threads(1)
x = torch.randn(256, 256)

samples = sample(lambda: torch.relu(x))
found = median_interval(samples.values)
print(f"relu of 256 x 256: {found.value * 1e6:.1f} µs, 95 % interval {found.low * 1e6:.1f} to {found.high * 1e6:.1f}")
print(f"{len(samples.values)} samples of {samples.loops} calls, stopped by {samples.stopped_by}")
