"""Plan a convolution on a core grid, execute it on a modelled chip, and compare the output with torch."""

import torch

import tessera
from tessera import coregrid as ttnn

conv = ttnn.Convolution(
    batch=2, height=28, width=28, in_channels=64, out_channels=64, kernel=(3, 3), padding=((1, 1), (1, 1))
)
search = tessera.plan_conv2d(conv, "wormhole-n150", input_layout=ttnn.ROW_MAJOR_LAYOUT, bias=True)
print("\n".join(search.explain()))

images, weights, bias = torch.randn(2, 64, 28, 28), torch.randn(64, 64, 3, 3) / 24, torch.randn(64)
device = ttnn.open_device("wormhole_n150")
output, [height, width] = ttnn.conv2d(
    input_tensor=ttnn.from_torch(images.permute(0, 2, 3, 1), ttnn.bfloat16),
    weight_tensor=ttnn.from_torch(weights, ttnn.bfloat16),
    bias_tensor=ttnn.from_torch(bias.reshape(1, 1, 1, 64), ttnn.bfloat16),
    in_channels=64,
    out_channels=64,
    device=device,
    kernel_size=(3, 3),
    padding=(1, 1),
    batch_size=2,
    input_height=28,
    input_width=28,
    conv_config=search.best.plan.config,
    return_output_dim=True,
)
result = ttnn.to_torch(output).reshape(2, height, width, -1)[..., :64].permute(0, 3, 1, 2).float()
reference = torch.nn.functional.conv2d(images, weights, bias, padding=1)
pcc = torch.corrcoef(torch.stack([result.flatten(), reference.flatten()]))[0, 1]
print(f"core grid: PCC {pcc:.5f} with torch, {device.ledger.remote:,} bytes sent between cores")
device.close()
