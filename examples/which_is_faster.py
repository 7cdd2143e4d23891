"""Compare two implementations, interleaved in random order, so that noise affects both equally."""

import torch

import tessera

torch.set_num_threads(1)
x = torch.randn(1, 64, 28, 28)
x_channels_last = x.to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(64, 64, 3, padding=1)

with torch.no_grad():
    result = tessera.interleave(
        {"default": lambda: conv(x), "channels last": lambda: conv(x_channels_last)}, budget=1.0
    )

ratio = result.ratio("channels last", "default")
print(f"channels last takes {ratio.value:.3f} of the default layout ({ratio.low:.3f} to {ratio.high:.3f})")
