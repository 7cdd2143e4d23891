"""Convolutions in JAX, on (n, channels, *space). Channels last is for XLA to choose: no input can have that layout."""

from __future__ import annotations

SPACE = "WHD"


def conv(dims: int, *, stride: str = "1", padding: str = "0", dilation: str = "1", groups: str = "1") -> str:
    """A convolution whose arguments are the same for every dim: names of attributes, or numbers."""
    return (
        f"lax.conv_general_dilated(data, weight, ({stride},) * {dims}, [({padding}, {padding})] * {dims},"
        f" rhs_dilation=({dilation},) * {dims}, feature_group_count={groups})"
    )


def conv_transpose(dims: int, *, output_padding: str = "0") -> str:
    """The transpose of a convolution; `padding` is what that one had."""
    spaces = SPACE[:dims]
    around = f"[(k - 1 - padding, k - 1 - padding + {output_padding}) for k in weight.shape[2:]]"
    return (
        f"lax.conv_transpose(data, weight, (stride,) * {dims}, {around},"
        f" dimension_numbers=('NC{spaces}', 'OI{spaces}', 'NC{spaces}'), transpose_kernel=True)"
    )


PLAIN = {"stride": "stride", "padding": "padding"}
DILATED = {"padding": "padding", "dilation": "dilation"}
GROUPED = {"padding": "padding", "groups": "groups"}
BIAS = " + bias[:, None, None]"

EXPRESSIONS = {
    "conv1d": conv(1, **PLAIN),
    "conv1d_1x1": conv(1, **PLAIN),
    "conv1d_dilated": conv(1, **DILATED),
    "conv1d_depthwise": conv(1, **GROUPED),
    "conv1d_stem": conv(1, **PLAIN),
    **{
        f"conv2d{variant}": conv(2, **PLAIN)
        for variant in ("", "_5x5", "_strided", "_deep", "_1x1", "_1x1_strided", "_stem")
    },
    "conv2d_bias": conv(2, **PLAIN) + BIAS,
    "conv2d_patches": conv(2, **PLAIN) + BIAS,
    "conv2d_dilated": conv(2, **DILATED),
    "conv2d_grouped": conv(2, **GROUPED),
    "conv2d_depthwise": conv(2, **GROUPED),
    "conv2d_depthwise_7x7": conv(2, **GROUPED),
    "conv2d_1x7": "lax.conv_general_dilated(data, weight, (stride,) * 2, [(p, p) for p in padding])",
    "conv3d": conv(3, **PLAIN),
    "conv3d_1x1": conv(3, **PLAIN),
    "conv3d_strided": conv(3, **PLAIN),
    "conv3d_depthwise": conv(3, **GROUPED),
    "conv_transpose1d": conv_transpose(1),
    "conv_transpose2d": conv_transpose(2),
    "conv_transpose2d_bias": conv_transpose(2) + BIAS,
    "conv_transpose2d_output_padding": conv_transpose(2, output_padding="output_padding"),
    # lax.conv_transpose has no groups
    "conv_transpose2d_depthwise": "lax.conv_general_dilated(data, jnp.flip(weight, (2, 3)), (1, 1),"
    " [(k - 1 - padding,) * 2 for k in weight.shape[2:]], lhs_dilation=(stride,) * 2, feature_group_count=groups)",
    "conv_transpose3d": conv_transpose(3),
    "conv_tbc": "lax.conv_general_dilated(data, weight, (1,), [(pad, pad)],"
    " dimension_numbers=('WNC', 'WIO', 'WNC')) + bias",
}
