"""Benchmark of the planner: predicted beside measured time and memory of steps on 1, 2 and 4 ranks of this host.

The prediction uses the calibration of this host (`tessera doctor --calibrate`); nothing is fitted to the measurements.
*error* is prediction / measurement - 1; *scaling* is the error after the predictions of a network are scaled so that
its first row has none. A second table compares predictions for a described machine with figures that others published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import inf, prod
from typing import Any

from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.machine import load_machine
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.spatial.bench.prediction import get_machine_with_link
from tessera.spatial.cost import predict_exchange
from tessera.spatial.scaling.measure import QUICK, SAMPLING, measure_step
from tessera.spatial.scaling.prediction import SplitStep, get_mesh, predict_step

RANKS = (1, 2, 4)
CASES = (  # network, image size, training
    ("resnet18", 128, True),
    ("resnet50", 256, True),
    ("resnet50", 512, False),
    ("unet", 256, False),
    ("unet", 128, True),
)
SMALL_CASES = (("resnet18", 64, True), ("resnet18", 64, False))
# Published by MPI4DL (its README and charts): 4 spatial parts and one GPU for the last layers, images/s.
PUBLISHED_MACHINE = "a100-pcie-80gb"
PUBLISHED_EXCHANGE = 0.334e-3  # seconds: 1024x1024, one channel, halo 3, four vertical parts
PUBLISHED_RATES = {  # (image size, batch): images/s by mesh
    (1024, 1): {(2, 2): 2.4, (1, 4): 2.5, (4, 1): 2.6},
    (1024, 2): {(2, 2): 2.85, (1, 4): 3.05, (4, 1): 3.1},
    (2048, 1): {(2, 2): 0.89, (1, 4): 0.98, (4, 1): 0.90},
}
# Published by vLLM-Omni: seconds to decode a video with the VAE of Wan, in tiles on 1, 2 and 4 GPUs. The network is not
# this one and its sizes are not given, and its tiles are independent: only the speed-up is compared.
PUBLISHED_TILES = {1: 56.96, 2: 28.99, 4: 15.00}
DECODER, LATENT_SIZE = "halo.decoder:make_decoder", 90


def run(
    say: Callable[[str], None], *, networks: Sequence[str] = (), small: bool = False, minutes: float = inf
) -> Iterator[dict[str, Any]]:
    """Measure all steps and predict the published ones; `lines` of the result are the tables.

    The published ones come first. After `minutes`, no further step is measured.
    """
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60 * minutes
    published = _compare_published(say)
    about = ["", *_format_published(published)]
    yield {"rows": rows, "published": published, "lines": about}
    for case in SMALL_CASES if small else CASES:
        if time.monotonic() < deadline and (not networks or any(name in case[0] for name in networks)):
            rows += _compare_case(*case, small, say)
            yield {"rows": rows, "published": published, "lines": [*_format_rows(rows), *about]}


def _compare_case(
    model: str, size: int, training: bool, quick: bool, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    host = load_machine("host", compute_host_fingerprint(describe_environment()))
    step, image, rows = SplitStep(model=model, training=training), (size, size), []
    for ranks in RANKS:
        say(f"planner: {step.describe()}, {size} pixels, {ranks} ranks")
        mesh = get_mesh(ranks, "nearest", image)
        seconds, memory, transport = measure_step(step, image, mesh, sampling=QUICK if quick else SAMPLING)
        machine = get_machine_with_link(host, transport, ranks) or host
        point = predict_step(step.run_dry(image, mesh), machine, step, machines=1)
        rows.append(
            {
                "step": f"{model} {size} {'training' if training else 'inference'}",
                "ranks": ranks,
                "predicted": point.seconds,
                "parts": dict(point.times.list_parts()),
                "measured": seconds,
                "error": point.seconds / seconds - 1,
                "memory predicted": point.memory,
                "memory measured": memory,
                "memory error": point.memory / memory - 1 if memory else None,
            }
        )
        rows[-1]["scaling"] = (1 + rows[-1]["error"]) / (1 + rows[0]["error"]) - 1
    return rows


def _compare_published(say: Callable[[str], None]) -> list[dict[str, Any]]:
    machine = load_machine(PUBLISHED_MACHINE)
    image = Partition.split_by_grid((1, 1024, 1024), Mesh(1, 4))
    exchange = predict_exchange(HaloPlan(image, Window.of(7, padding=3), image), 4, machine)
    rows = [{"what": "exchange, ms", "predicted": exchange * 1e3, "published": PUBLISHED_EXCHANGE * 1e3}]
    for (size, batch), rates in PUBLISHED_RATES.items():
        step = SplitStep(model="resnet50", batch=batch)
        for mesh, rate in rates.items():
            say(f"planner: published, {size} pixels, batch {batch}, {prod(mesh)} parts")
            point = predict_step(step.run_dry((size, size), mesh), machine, step)
            name = f"ResNet {size}, batch {batch}, {mesh[0]}x{mesh[1]}, images/s"
            rows.append({"what": name, "predicted": batch / point.seconds, "published": rate})
    rows += _compare_tiles(say)
    for row in rows:
        row["error"] = row["predicted"] / row["published"] - 1
    return rows


def _compare_tiles(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Compare the speed-up of a decoder with the speed-up that vLLM-Omni published."""
    machine, step = load_machine(PUBLISHED_MACHINE), SplitStep(model=DECODER, channels=4, training=False)
    seconds = {}
    for parts in PUBLISHED_TILES:
        say(f"planner: published, decoder, {parts} parts")
        dry = step.run_dry((LATENT_SIZE, LATENT_SIZE), get_mesh(parts, "nearest", (LATENT_SIZE, LATENT_SIZE)))
        seconds[parts] = predict_step(dry, machine, step).seconds
    return [
        {
            "what": f"VAE decoder, speed-up on {parts} (vLLM-Omni)",
            "predicted": seconds[1] / seconds[parts],
            "published": PUBLISHED_TILES[1] / PUBLISHED_TILES[parts],
        }
        for parts in (2, 4)
    ]


def _format_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        f"{'step':28} {'ranks':>5} {'predicted':>10} {'measured':>10} {'error':>7} {'scaling':>8} "
        f"{'memory':>9} {'measured':>9} {'error':>7}"
    ]
    for row in rows:
        wrong = "" if row["memory error"] is None else f"{row['memory error']:+.0%}"
        lines.append(
            f"{row['step']:28} {row['ranks']:>5} {row['predicted'] * 1e3:>7.1f} ms {row['measured'] * 1e3:>7.1f} ms "
            f"{row['error']:>+7.0%} {row['scaling']:>+8.0%} {row['memory predicted'] / 2**20:>5.0f} MiB "
            f"{row['memory measured'] / 2**20:>5.0f} MiB {wrong:>7}"
        )
    return lines


def _format_published(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"{'published by MPI4DL and vLLM-Omni':42} {'predicted':>10} {'published':>10} {'error':>8}"]
    return lines + [
        f"{row['what']:42} {row['predicted']:>10.3g} {row['published']:>10.3g} {row['error']:>+8.0%}" for row in rows
    ]
