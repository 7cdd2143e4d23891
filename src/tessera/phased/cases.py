"""Parameter axes of phased execution, the benchmark cases built from them, and the launch of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tessera.axes import Axes, Axis, Option, parse_bool, parse_int, split_list
from tessera.errors import TesseraError, suggest_similar
from tessera.launch import LaunchConfig
from tessera.models import MODELS, get_image_size
from tessera.phased.choices import CONFIG_NAME, NETWORKS, SCHEDULES, STORES, WEIGHT_DTYPES, normalize_size, parse_bytes
from tessera.results.record import Case

CHAIN = "chain"
ANY_MODEL = "--model"  # key of the axes and defaults of every network except the chain
MIN_LAUNCH_DEVICES = 2  # every case gets cores for at least this many devices, to compare schedules fairly
GROUP_NETWORK, GROUP_STREAMING = "network", "streaming"
STREAMING_AXES = ("budget", "memory_limit", "cold", "store")  # not applicable if all weights stay in memory


def parse_schedules(text: str) -> list[str]:
    """Parse a comma-separated list of schedules; `all` selects every schedule."""
    return list(SCHEDULES) if text == "all" else split_list(text)


def _declare_count(name: str, help: str, **settings: Any) -> Axis:
    """Declare an axis of integers of at least 1."""
    fields: dict[str, Any] = {"name": name, "parse": parse_int, "minimum": 1, "several": True, "help": help}
    return Axis(**(fields | settings))


AXES = Axes(
    "phases",
    (
        _declare_count(
            "dsize",
            "rows and columns of the chain's square matrices",
            default=250,
            applies_to=(CHAIN,),
            group=GROUP_NETWORK,
        ),
        _declare_count(
            "num_layers",
            "layers of the chain, each a matrix product",
            default=3,
            applies_to=(CHAIN,),
            group=GROUP_NETWORK,
        ),
        _declare_count(
            "image_size",
            "height and width of the model's images in pixels",
            default_text="the size that the model is made for",
            applies_to=(ANY_MODEL,),
            group=GROUP_NETWORK,
        ),
        Axis(
            name="weights",
            metavar="FILE",
            applies_to=(ANY_MODEL,),
            group=GROUP_NETWORK,
            help="safetensors file of the model's weights",
            default_text="random weights",
        ),
        _declare_count(
            "batch_size",
            "matrices or images per mini-batch",
            defaults={CHAIN: 32, ANY_MODEL: 1},
            default_text="32; with --model 1",
            group=GROUP_NETWORK,
        ),
        _declare_count(
            "batches_per_step",
            "mini-batches per iteration; all are computed with each loaded phase",
            defaults={CHAIN: 100, ANY_MODEL: 1},
            default_text="100; with --model 1",
            group=GROUP_NETWORK,
        ),
        Axis(
            name="dtype",
            choices=WEIGHT_DTYPES,
            several=True,
            defaults={CHAIN: "float16", ANY_MODEL: "float32"},
            default_text="float16; with --model float32",
            group=GROUP_NETWORK,
            help="format of stored weights; fewer bits than 32 are computed as float32",
        ),
        Axis(
            name="schedule",
            choices=tuple(SCHEDULES),
            several=True,
            parse_list=parse_schedules,
            default="phased",
            exclusive="schedule",
            group=GROUP_STREAMING,
            help="schedules of loading and computing phases, or all",
        ),
        _declare_count(
            "devices",
            "devices that alternate or share the work",
            default_text="2; 1 for schedules of one device",
            group=GROUP_STREAMING,
        ),
        Axis(
            name="store",
            option="--weight-store",
            choices=tuple(STORES),
            several=True,
            default="disk",
            group=GROUP_STREAMING,
            help="storage of weights that are not in working memory",
        ),
        Axis(
            name="cold",
            parse=parse_bool,
            choices=(False, True),
            default=False,
            action="flag",
            in_key="unless_default",
            group=GROUP_STREAMING,
            help="direct reads from the disk, which bypass the page cache",
        ),
        Axis(
            name="budget",
            option="--weight-budget",
            several=True,
            metavar="SIZE",
            parse=normalize_size,
            check=parse_bytes,
            group=GROUP_STREAMING,
            help="working memory for weights, for example 256MB",
            default_text="a quarter of the weights, at least two layers",
        ),
        Axis(
            name="memory_limit",
            several=True,
            metavar="SIZE",
            parse=normalize_size,
            check=parse_bytes,
            group=GROUP_STREAMING,
            help="memory of the whole process, for example 1GB; the weights get what it leaves",
            default_text="none",
        ),
        _declare_count(
            "threads", "threads per device", several=False, default=1, in_key="unless_default", group="workers"
        ),
    ),
)
# `--sharded-execution` is an alias of `--schedule sharded`.
SHARDED_EXECUTION = Option(
    name="schedule",
    option="--sharded-execution",
    action="const",
    const=("sharded",),
    exclusive="schedule",
    group=GROUP_STREAMING,
    help="short for --schedule sharded",
)


def cases(names: Sequence[str] = (CHAIN,), **axes: Sequence[Any]) -> list[Case]:
    """Return the cases of the networks: for each network, every combination of the values of its applicable axes.

    `chain` is the matrix chain; other names are models, `module:callable` or checkpoint folders. Without `budget` a
    case has working memory for a quarter of its weights, and at least for two of its largest layers.

    >>> [case.key for case in cases(schedule=["phased", "resident"], dsize=[64])]
    ['phases/chain[batch_size=32,batches_per_step=100,devices=2,dsize=64,dtype=float16,num_layers=3,schedule=phased,\
store=disk]', 'phases/chain[batch_size=32,batches_per_step=100,devices=1,dsize=64,dtype=float16,num_layers=3,\
schedule=resident]']
    """
    for name in names:
        known = [CHAIN, *NETWORKS, *MODELS]
        if name not in known and ":" not in name and not is_checkpoint_folder(name):
            raise TesseraError(
                "unknown model",
                got=name,
                allowed=[*known, "module:callable", "a folder with config.json"],
                do=suggest_similar(name, known),
            )
    AXES.check_values(axes)
    AXES.check_applicable(axes, [_get_network_kind(name) for name in names])
    _check_combinations(axes)
    for name in names:
        given = [axis for axis in ("dtype", "weights", "image_size") if axes.get(axis)]
        if given and is_checkpoint_folder(name):
            raise TesseraError(
                f"{AXES[given[0]].flag} cannot be combined with a checkpoint folder, which determines it", got=name
            )
    expanded = [
        Case(feature="phases", name=name, params=_complete_params(name, params))
        for name in names
        for params in AXES.select(_get_network_kind(name)).expand(axes)
    ]
    return list({case.key: case for case in expanded}.values())


def is_checkpoint_folder(name: str) -> bool:
    """Return whether the name of a network is the path of a Hugging Face folder: it contains a config.json."""
    return name not in (CHAIN, *NETWORKS, *MODELS) and (Path(name) / CONFIG_NAME).is_file()


def _get_network_kind(name: str) -> str:
    return CHAIN if name == CHAIN else ANY_MODEL


def _check_combinations(axes: Mapping[str, Sequence[Any]]) -> None:
    """Raise an error for axis values that contradict each other, or that would have no effect on any case."""
    schedules = [SCHEDULES[name] for name in axes.get("schedule") or AXES["schedule"].default_values]
    check_streaming_options([axis for axis in STREAMING_AXES if axis in axes], [traits.name for traits in schedules])
    if axes.get("weights") and axes.get("dtype"):
        raise TesseraError("--dtype cannot be combined with --weights: the file determines the dtype")
    stores = list(axes.get("store") or AXES["store"].default_values)
    if any(axes.get("cold", ())) and not all(STORES[name].can_be_cold for name in stores):
        allowed = [name for name, traits in STORES.items() if traits.can_be_cold]
        raise TesseraError(
            f"--cold applies only to --weight-store {' and '.join(allowed)}", got=f"--weight-store {','.join(stores)}"
        )
    alone = [traits.name for traits in schedules if not traits.several_devices]
    if alone and any(count > 1 for count in axes.get("devices", ())):
        several = [name for name, traits in SCHEDULES.items() if traits.several_devices]
        raise TesseraError(
            f"schedule {' and '.join(alone)} runs on one device",
            got=f"--devices {max(axes['devices'])}",
            allowed="1",
            do=f"choose --schedule {' or '.join(several)}",
        )


def check_streaming_options(options: Sequence[str], schedules: Sequence[str]) -> None:
    """Raise an error if an option that requires streamed weights is given, but no schedule streams weights."""
    if not all(SCHEDULES[name].holds_all_weights for name in schedules):
        return
    for name in options:
        flag = AXES[name].flag if name in AXES else f"--{name}"
        raise TesseraError(
            f"{flag} applies only to schedules that stream weights",
            got=",".join(schedules),
            allowed=[name for name, traits in SCHEDULES.items() if not traits.holds_all_weights],
        )


def _complete_params(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Add defaults that depend on other parameters of a case, and remove parameters without effect."""
    traits = SCHEDULES[params["schedule"]]
    params.setdefault("devices", traits.default_devices)
    if "weights" in params or is_checkpoint_folder(name):
        del params["dtype"]  # the dtype of the file is used
    if name not in (CHAIN, *NETWORKS) and not is_checkpoint_folder(name):
        params.setdefault("image_size", get_image_size(name))
    if traits.holds_all_weights:
        params = {axis: value for axis, value in params.items() if axis not in STREAMING_AXES}
    return AXES.omit_defaults(params)


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return the launch of a case: one worker, with cores for at least two devices under every schedule."""
    devices, threads = int(case.params["devices"]), int(case.params.get("threads", 1))
    return replace(
        base,
        spawn="inline" if base.spawn == "inline" else "processes",
        workers=1,
        threads=max(devices, MIN_LAUNCH_DEVICES) * threads,
    )
