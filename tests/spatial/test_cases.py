"""Tests of cases built from options: derived values, refusals, and the number of ranks of a case."""

from __future__ import annotations

import itertools
import random

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.spatial import cases as module
from tessera.spatial.cases import AXES, BENCHMARKS, PLAN, cases, launch
from tessera.spatial.distribution import OVERLAPS
from tessera.spatial.problem import ExchangeVolume, HaloProblem
from tessera.transport.registry import get_spawn


def make_case(**axes):
    (case,) = cases(["exchange"], **axes)
    return case


def test_default_cases():
    params = make_case().params
    assert params == params | {
        "image_size": 8,
        "batch_size": 1,
        "in_channels": 1,
        "kernel": 3,
        "padding": 1,
        "num_spatial_parts": 4,
        "slice_method": "square",
        "dtype": "float32",
    }
    assert cases(["compute"])[0].params["out_channels"] == 256
    assert module.OVERLAPS == OVERLAPS


@pytest.mark.parametrize("halo", [0, 1, 2, 5])
def test_the_halo_is_half_a_kernel_and_its_padding(halo):
    params = make_case(halo_len=[halo], image_size=[16]).params
    assert (params["kernel"], params["padding"]) == (2 * halo + 1, halo)
    assert HaloProblem.of(params).output == (16, 16)


def test_every_combination_is_a_case_and_none_comes_twice():
    sizes, channels = random.sample(range(8, 200), 4), random.sample(range(1, 70), 3)
    expanded = cases(["exchange", "compute"], image_size=sizes, in_channels=channels, overlap=["none", "auto"])
    assert len(expanded) == len({case.key for case in expanded}) == 12 + 24
    assert {case.params["image_size"] for case in expanded} == set(sizes)
    assert len(cases(["exchange"], image_size=[8, 8, [8, 8]])) == 1


def test_cases_with_the_same_number_of_ranks_are_consecutive():
    ordered = cases(num_spatial_parts=[2, 4], slice_method=["vertical"], transport=["auto", "gloo"])
    needed = [(case.params["transport"], case.params["num_spatial_parts"]) for case in ordered]
    changes = sum(a != b for a, b in itertools.pairwise(needed))
    assert changes == len(set(needed)) - 1


def test_a_validation_takes_all_overlaps_in_one_case():
    (case,) = cases(["validate"], overlap=["none", "split"])
    assert case.params["overlap"] == ["none", "split"]


def test_height_and_width_may_differ():
    params = make_case(image_size=[[24, 40]], kernel=[[3, 5]], stride=[[1, 2]], dilation=[[2, 1]]).params
    assert (params["image_size"], params["kernel"], params["padding"]) == ([24, 40], [3, 5], 2)
    assert HaloProblem.of(params).output == (24, 20)


def test_borders_are_counted_per_rank():
    params = make_case(image_size=[32], in_channels=[3], batch_size=[2], slice_method=["2x2"]).params
    # a tile of 16x16: a row and a column of 16 pixels, and the corner between them
    each = (16 + 16 + 1) * 2 * 3 * 4
    assert ExchangeVolume.of(HaloProblem.of(params)) == ExchangeVolume(received=each, neighbours=3, total=4 * each)


@pytest.mark.parametrize(
    ("names", "axes", "says"),
    [
        (["halo"], {}, "unknown halo benchmark"),
        (["exchange"], {"colour": ["red"]}, "unknown axis"),
        (["exchange"], {"image_sise": [3]}, "did you mean image_size"),
        (["exchange"], {"slice_method": ["diagonal"]}, "unknown slice method 'diagonal'; allowed: vertical"),
        (["exchange"], {"num_spatial_parts": [6], "slice_method": ["2x2"]}, "allowed: 1x6, 2x3, 3x2, 6x1"),
        (["exchange"], {"slice_method": ["2x1x2"]}, "2x1x2 splits 3 dims, but the image has 2"),
        (
            ["exchange"],
            {"image_size": [[1, 8, 8]], "slice_method": ["2x1x2"]},
            "more parts than the image has pixels along a dim",
        ),
        (
            ["exchange"],
            {"image_size": [[8, 8, 8]], "kernel": [[3, 3]]},
            "--kernel: got [3, 3]; allowed: 1 or more, or DEPTHxHEIGHTxWIDTH",
        ),
        (["exchange"], {"slice_method": ["2x3"]}, "2x3 makes 6 parts, not 4"),
        (["exchange"], {"num_spatial_parts": [0]}, "1 part or more"),
        (
            ["exchange"],
            {"num_spatial_parts": [9], "slice_method": ["vertical"]},
            "more parts than the image has pixels along a dim",
        ),
        (["exchange"], {"kernel": [11], "padding": [1]}, "does not fit an image of 8 padded by 1 and 1"),
        (["exchange"], {"kernel": [3], "halo_len": [1]}, "both set the kernel size"),
        (["exchange"], {"halo_len": [-1]}, "--halo-len"),
        (["exchange"], {"image_size": [0]}, "--image-size"),
        (["exchange"], {"batch_size": [0]}, "--batch-size"),
        (["exchange"], {"stride": [0]}, "--stride"),
        (["exchange"], {"padding": [-1]}, "--padding"),
        (["exchange"], {"padding": [8], "padding_mode": ["reflect"]}, "reflect padding of 8 pixels"),
        (["exchange"], {"padding_mode": ["mirror"]}, "unknown padding mode"),
        (["exchange"], {"dtype": ["int3"]}, "unknown dtype"),
        (["exchange"], {"transport": ["pigeon"]}, "unknown transport"),
        (["exchange"], {"layout": ["diagonal"]}, "unknown layout"),
        (["compute"], {"overlap": ["most"]}, "unknown overlap"),
        (["compute"], {"fused_layers": [0]}, "--fused-layers"),
        (["compute"], {"halo_depth": [2]}, "--halo-depth requires --fused-layers of 2 or more"),
        (["compute"], {"fused_layers": [4], "halo_depth": [0]}, "--halo-depth: got"),
        (["compute"], {"fused_layers": [4], "overlap": ["split"]}, "--fused-layers does not support --overlap"),
        (["compute"], {"fused_layers": [5], "padding": [0]}, "layer 4 of 5 does not fit"),
        (["exchange"], {"fused_layers": [2]}, "--fused-layers applies only to compute"),
        (["validate"], {"rounds": [2]}, "3 or more"),
        (["exchange"], {"out_channels": [4]}, "--out-channels applies only to compute and validate: got 'exchange'"),
        (["validate"], {"backward": [True]}, "--backward applies only to exchange and compute"),
        (["validate"], {"overlap": []}, "--overlap has no values: allowed: none, split, recompute, auto; give one"),
        (["exchange"], {"kernel": []}, "kernel has no values"),
        (["exchange"], {"image_size": ()}, "--image-size has no values"),
    ],
)
def test_invalid_options_are_refused(names, axes, says):
    with pytest.raises(TesseraError) as caught:
        cases(names, **axes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fused_layers_are_computed_without_overlap():
    one, four = cases(["compute"], fused_layers=[4], halo_depth=[1, "auto"], out_channels=[2])
    assert [case.params["overlap"] for case in (one, four)] == ["none", "none"]
    assert "halo_depth" not in one.params
    assert (four.params["fused_layers"], four.params["halo_depth"]) == (4, "auto")


def test_axes_apply_to_benchmarks():
    assert all(set(axis.applies_to) <= {*BENCHMARKS, PLAN} for axis in AXES)


def test_every_part_gets_a_rank_and_an_unsplit_image_a_process():
    base = LaunchConfig(threads=3, time_limit=7.0)
    (cut,) = cases(["exchange"], transport=["gloo"], num_spatial_parts=[6], slice_method=["2x3"])
    config = launch(cut, base)
    assert (config.spawn, config.workers, config.threads, config.time_limit) == ("torchrun", 6, 3, 7.0)
    assert launch(make_case(), base).spawn == get_spawn("auto")
    assert launch(make_case(num_spatial_parts=[1]), base).spawn == "processes"
