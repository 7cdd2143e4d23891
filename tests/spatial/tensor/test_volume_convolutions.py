"""Convolutions of small float32 volumes, which torch alone computes without oneDNN."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tessera.spatial.tensor.rules.convolution import _convolve_pixels

SETTINGS = [((1, 1, 1), (0, 0, 0), (1, 1, 1)), ((2, 1, 2), (1, 1, 0), (1, 2, 1))]


@pytest.mark.parametrize(("stride", "padding", "dilation"), SETTINGS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_a_small_volume_equals_torch(stride, padding, dilation, groups, bias):
    frame, weight = torch.randn(1, 4, 9, 8, 7), torch.randn(6, 4 // groups, 3, 3, 3)
    offsets = torch.randn(6) if bias else None
    expected = torch.conv3d(
        frame.double(),
        weight.double(),
        None if offsets is None else offsets.double(),
        stride,
        padding,
        dilation,
        groups,
    )
    actual = _convolve_pixels(frame, weight, offsets, stride, padding, dilation, False, (0, 0, 0), groups)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)


def test_onednn_computes_small_volumes_unless_it_is_switched_off():
    frame, weight = torch.randn(1, 2, 6, 6, 6), torch.randn(2, 2, 3, 3, 3)
    arguments = (frame, weight, None, (1, 1, 1), (0, 0, 0), (1, 1, 1), False, (0, 0, 0), 1)

    def list_operators():
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            _convolve_pixels(*arguments)
        return {event.key for event in recorded.key_averages()}

    assert "aten::mkldnn_convolution" in list_operators()
    with torch.backends.mkldnn.flags(enabled=False):
        assert "aten::mkldnn_convolution" not in list_operators()
