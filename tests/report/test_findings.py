"""Golden texts of findings: every rule on planted records where it fires, and on noisy ones where it must not."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tessera.cli.main import CommandParser
from tessera.cli.options import configure_parser
from tessera.launch.fresh import load_object
from tessera.measure.samples import Samples
from tessera.report.findings import Finding, compare_records, estimate_figure, format_findings
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record
from tessera.suites.report import find_results

LAUNCHES = 5
QUIET, NOISY = 0.01, 5.0


def plant(
    feature: str,
    name: str,
    value: float,
    *,
    noise: float = QUIET,
    metrics: Mapping[str, float] | None = None,
    predicted: Mapping[str, float] | None = None,
    unit: str = "s",
    chosen: Mapping[str, object] | None = None,
    **params: object,
) -> Record:
    """Make a record whose launches differ by exactly known factors around `value`: (1 - noise) to (1 + noise)."""
    factors = [(1 + noise) ** (2 * launch / (LAUNCHES - 1) - 1) for launch in range(LAUNCHES)]
    launches = tuple(Samples(values=(value * factor,) * 9) for factor in factors)
    main = {"throughput": value} if unit == "images/s" else {"time": value}
    return Record(
        case=Case(feature=feature, name=name, params=params),
        launches=launches,
        unit=unit,
        direction="higher" if unit == "images/s" else "lower",
        metrics=make_metrics({**main, **(metrics or {})}, feature),
        predicted=make_metrics(dict(predicted or {}), feature),
        chosen=dict(chosen or {}),
    )


def find_texts(records: Sequence[Record]) -> list[str]:
    """Return the findings without the finding on noise."""
    return [finding.text for finding in find_results(records) if finding.feature != "noise"]


def plant_operators(noise: float, worst: float = 20e-3) -> list[Record]:
    times = {"sort": worst, "add": 2e-3, "relu": 2.5e-3, "matmul": 1.6e-3}
    return [
        plant(
            "ops",
            name,
            seconds,
            noise=noise,
            metrics={"roofline": 1e-3 / seconds},
            predicted={"time": 1e-3},
            backend="torch",
            size="medium",
        )
        for name, seconds in times.items()
    ]


def plant_backends(noise: float) -> list[Record]:
    return [
        plant("ops", "sum", 3e-3, noise=noise, backend="torch", size="medium"),
        plant("ops", "sum", 6e-3, noise=noise, backend="numpy", size="medium"),
        plant("ops", "exp", 4e-3, noise=noise, backend="torch", size="medium"),
        plant("ops", "exp", 3e-3, noise=noise, backend="numpy", size="medium"),
    ]


def plant_fusion(noise: float) -> list[Record]:
    gain = {"gain": 1.8, "gain_low": 1.8 / (1 + noise), "gain_high": 1.8 * (1 + noise), "unfused": 1.8e-3}
    return [plant("ops", "multiply_add", 1e-3, metrics=gain, fusion="library", backend="torch")]


def plant_inputs(noise: float) -> list[Record]:
    return [
        plant("ops", "sort", 10e-3, noise=noise, backend="torch", size="medium"),
        plant("ops", "sort", 2e-3, noise=noise, backend="torch", size="medium", skew="sorted"),
    ]


def plant_stale(noise: float) -> list[Record]:
    return [replace(record, predicted=make_metrics({"time": 30e-3})) for record in plant_operators(noise)]


HALO = {"image_size": 1024, "num_spatial_parts": 2, "slice_method": "vertical", "in_channels": 16}


def plant_exchange(noise: float) -> list[Record]:
    metrics = {"copy": 10e-6, "bytes": 65536.0}
    chosen = {"transport": "shm"}
    return [plant("halo", "exchange", 20e-6, noise=noise, metrics=metrics, chosen=chosen, transport="auto", **HALO)]


def plant_transports(noise: float) -> list[Record]:
    return [
        plant("halo", "exchange", 20e-6, noise=noise, chosen={"transport": "shm"}, transport="auto", **HALO),
        plant("halo", "exchange", 40e-6, noise=noise, chosen={"transport": "gloo"}, transport="gloo", **HALO),
    ]


def plant_overlap(noise: float) -> list[Record]:
    hidden = {"hidden": 0.8, "hidden_low": 0.8 - noise, "hidden_high": 0.8 + noise}
    return [plant("halo", "compute", 1e-3, metrics=hidden, overlap="split", **HALO)]


def plant_split_network(noise: float) -> list[Record]:
    return [plant("halo", "network", 90e-3, noise=noise, metrics={"uncut": 60e-3}, model="resnet18", **HALO)]


def plant_engines(noise: float) -> list[Record]:
    rates = {"torch-eager": 20.0, "openvino": 35.0}
    settings = {"unit": "images/s", "num_replicas": 1, "batch_size": 4, "noise": noise}
    return [plant("infer", "resnet18", rate, engine=engine, **settings) for engine, rate in rates.items()]


def plant_replicas(noise: float) -> list[Record]:
    settings = {"unit": "images/s", "engine": "openvino", "batch_size": 4, "noise": noise}
    return [plant("infer", "resnet18", 20.0 * count**0.9, num_replicas=count, **settings) for count in (1, 2)]


def plant_schedules(noise: float) -> list[Record]:
    times = {"sequential": 30e-3, "overlapped": 20e-3}
    return [
        plant(
            "phases",
            "chain",
            seconds,
            noise=noise,
            metrics={"load": 10e-3, "hidden": 0.9 if schedule == "overlapped" else 0.0},
            schedule=schedule,
        )
        for schedule, seconds in times.items()
    ]


def plant_streaming(noise: float) -> list[Record]:
    memory = {"working_memory": 25e6, "weights": 100e6, "phases": 8.0}
    return [
        plant("phases", "resnet18", 24e-3, noise=noise, metrics={"load": 9e-3, **memory}, schedule="overlapped"),
        plant("phases", "resnet18", 20e-3, noise=noise, metrics=memory, schedule="resident"),
    ]


RULES = {
    "roofline": (
        plant_operators,
        "sort is furthest from the roofline: it reaches 5.0% (5.0% to 5.0%) of what this machine's memory and"
        " compute rates allow; the median of 4 operators is 45.0%.",
    ),
    "stale calibration": (
        plant_stale,
        "The calibration is stale: 4 of 4 operators are faster than the calibrated rates allow, matmul by "
        "18.8x (18.6x to 18.9x).",
    ),
    "backends": (
        plant_backends,
        "The fastest backend depends on the operator: torch in 1, numpy in 1 of 2 pairs (0 undecided). "
        "Largest difference: sum is 2.00x (1.98x to 2.02x) as fast on torch as on numpy.",
    ),
    "fusion": (
        plant_fusion,
        "As one kernel, multiply_add is 1.80x (1.78x to 1.82x) as fast as its separate steps.",
    ),
    "inputs": (
        plant_inputs,
        "The inputs matter: on sorted inputs, sort is 5.00x (4.94x to 5.06x) as fast as on random inputs.",
    ),
    "exchange": (
        plant_exchange,
        "Exchanging the halos of 1024 px on 2 ranks (64.0 KiB per rank) takes 20.0 µs (19.8 µs to 20.2 µs) by"
        " shm, 2.00x (1.98x to 2.02x) of a plain copy of these bytes.",
    ),
    "transports": (
        plant_transports,
        "For 1024 px on 2 ranks, shm is 2.00x (1.98x to 2.02x) as fast as gloo.",
    ),
    "overlap": (
        plant_overlap,
        "Overlap `split` hides 80.0% (79.0% to 81.0%) of the exchange behind a convolution of 1024 px on 2 ranks.",
    ),
    "network": (
        plant_split_network,
        "A forward pass of resnet18 on an image of 1024 px on 2 ranks takes 1.50x (1.49x to 1.51x) of the "
        "unsplit network's time on the same cores.",
    ),
    "engines": (
        plant_engines,
        "Engine openvino runs resnet18 at batch 4 1.75x (1.73x to 1.77x) as fast as torch-eager.",
    ),
    "replicas": (
        plant_replicas,
        "2 replicas of resnet18 in openvino give 1.87x (1.84x to 1.89x) the rate of one.",
    ),
    "schedules": (
        plant_schedules,
        "For streamed weights of chain, schedule overlapped is 1.50x (1.48x to 1.52x) as fast as sequential; "
        "90.0% of the loading is hidden.",
    ),
    "streaming": (
        plant_streaming,
        "resnet18 with 25.0% of its weights in memory (overlapped) takes 1.20x (1.19x to 1.21x) of the time "
        "with all weights in memory.",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_fires_on_a_planted_difference(rule: str) -> None:
    plant_records, text = RULES[rule]
    assert text in find_texts(plant_records(QUIET))


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_silent_if_noise_can_explain_the_difference(rule: str) -> None:
    plant_records, _ = RULES[rule]
    assert find_texts(plant_records(NOISY)) == []


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_silent_with_a_single_launch(rule: str) -> None:
    plant_records, _ = RULES[rule]
    single = [replace(record, launches=record.launches[:1]) for record in plant_records(QUIET)]
    measured_within = ("fusion", "overlap")  # their intervals are in the record
    assert bool(find_texts(single)) == (rule in measured_within)


def test_equal_figures_give_no_finding() -> None:
    same = [plant("ops", "sum", 3e-3, backend=backend, size="medium") for backend in ("torch", "numpy")]
    even = plant_operators(QUIET, worst=2e-3)
    assert find_texts([*same, *even]) == []


def test_core_grid_findings() -> None:
    params = {"machine": "wormhole-n150", "layer": "resnet50:layer1.0.conv2", "image_size": 56}
    memory = {"high_water": 142336.0}
    records = [
        plant(
            "conv",
            "conv2d",
            30e-3,
            metrics=memory,
            predicted={"chip_time": seconds},
            chosen={"layout": "HEIGHT", "cores": cores},
            shard_layout=layout,
            **params,
        )
        for layout, seconds, cores in (("search", 8e-6, 49), ("auto", 12e-6, 56))
    ]
    assert find_texts(records) == [
        "For resnet50:layer1.0.conv2 on wormhole-n150, the search picks layout HEIGHT on 49 cores and needs 139 KiB "
        "per core: predicted 8.00 µs, 1.50x as fast as the chip's own choice HEIGHT on 56 cores (12.0 µs)."
    ]
    refused = Record(
        case=Case(feature="conv", name="conv2d", params=params | {"layer": "large"}),
        status="refused",
        reason="no layout fits: 2.1 MiB of 1.5 MiB; use --num-slices 4",
    )
    assert find_texts([*records, refused])[1] == (
        "1 of 3 convolutions do not fit, for example large: no layout fits: 2.1 MiB of 1.5 MiB; use --num-slices 4."
    )
    network = plant(
        "conv",
        "network",
        2.0,
        metrics={"images_per_second": 6000.0},
        predicted={"images_per_second": 6600.0},
        network="resnet50",
        batch_size=16,
        machine="wormhole-n150",
    )
    assert find_texts([network]) == [
        "resnet50 with batch 16 on wormhole-n150: predicted 6,600 images/s, published 6,000 (+10.0%)."
    ]


def test_validation_finding() -> None:
    passed = replace(
        plant("halo", "validate", 1.0, metrics={"error_output": 1.2e-6, "tolerance": 1e-4}, **HALO), verdict="passed"
    )
    (text,) = find_texts([passed])
    assert text.startswith("The split convolution equals the unsplit one in 1 of 1 validations")
    failed = replace(passed, verdict="failed")
    (text,) = find_texts([failed])
    assert text == "1 of 1 validations failed: the split convolution differs from the unsplit one."


def test_noise_is_summarised_in_one_finding() -> None:
    records = [plant("ops", "add", 1e-3, size="small"), plant("ops", "exp", 1e-3, noise=0.4, size="small")]
    (finding,) = find_results(records)
    assert finding == Finding(
        feature="noise",
        text="1 of 2 figures are too noisy to be compared; the widest is ops exp, ± 34.3%.",
        command="tessera doctor",
    )


def _list_planted() -> list[Finding]:
    return [finding for plant_records, _ in RULES.values() for finding in find_results(plant_records(QUIET))]


def test_every_finding_has_a_number_and_a_command_that_parses() -> None:
    findings = _list_planted()
    assert len(findings) >= len(RULES)
    for finding in findings:
        assert any(letter.isdigit() for letter in finding.text)
        program, command, *words = shlex.split(finding.command)
        assert program == "tessera"
        module = load_object(f"tessera.cli.{command}_command:run").__globals__
        parser = CommandParser(prog=command)
        configure_parser(parser, type("Command", (), dict(module)))  # type: ignore[arg-type]
        parser.parse_args(words)


def test_lines_fit_the_width() -> None:
    lines = format_findings(_list_planted(), 80)
    commands = [line for line in lines if line.startswith("    > ")]
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert lines[0] == "Findings"
    assert format_findings([], 80) == ["Findings: none that noise could not explain"]


def test_the_interval_covers_the_true_ratio() -> None:
    """Random launches around known medians: the 95 % interval contains the true ratio in nearly all trials."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)

    def make_noisy(value: float) -> Record:
        values = [value * draw.lognormvariate(0, 0.05) for _ in range(LAUNCHES)]
        return Record(
            case=Case(feature="ops", name="add"), launches=tuple(Samples(values=(each,) * 5) for each in values)
        )

    covered = 0
    for _ in range(200):
        (judged,) = compare_records([(make_noisy(1.0), make_noisy(2.0))])
        assert judged.low is not None
        assert judged.high is not None
        covered += judged.low <= 2.0 <= judged.high
    assert covered >= 175


def test_estimate_of_identical_launches_is_exact() -> None:
    estimate = estimate_figure(plant("ops", "add", 2.0, noise=0.0))
    assert estimate is not None
    assert (round(estimate.low, 9), round(estimate.value, 9), round(estimate.high, 9)) == (2.0, 2.0, 2.0)
