"""Two ways to do the same thing, sampled in random alternation so that noise hits both alike."""

import torch

from tessera.measure.interleave import sample_interleaved
from tessera.measure.verdict import verdict_of

torch.set_num_threads(1)
x = torch.randn(1, 64, 28, 28)
last = x.to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(64, 64, 3, padding=1)

with torch.no_grad():
    found = sample_interleaved({"default": lambda: conv(x), "channels last": lambda: conv(last)}, budget=1.0)

ratio = found.ratio("channels last", "default")
verdict = verdict_of(ratio, threshold=0.01)
print(f"channels last takes {ratio.value:.3f} of the default layout ({ratio.low:.3f} to {ratio.high:.3f}): {verdict}")
