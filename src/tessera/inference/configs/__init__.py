"""Configs: named settings, shipped with Tessera or in a file of the user.

A config is a TOML file with a `title`, `aliases`, the `batch_sizes` and `iterations` of a sweep, and a table
`[settings]` whose keys are the options of `tessera infer` with `_` for `-`. Command-line options override the config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError, suggest_similar
from tessera.inference.settings import Settings
from tessera.machine.toml import read_toml

CONFIG_FOLDER = Path(__file__).parent
CONFIG_FIELDS = ("title", "aliases", "batch_sizes", "iterations", "settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Named settings. `batch_sizes` and `iterations` are used by sweeps (`--batch-size all`)."""

    name: str
    title: str
    settings: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    iterations: int | None = None


def list_configs() -> list[str]:
    """Return the names of the shipped configs.

    >>> list_configs()[:3]
    ['efficientnet-b0', 'efficientnet-b0-g16', 'efficientnet-b4']
    """
    return sorted(path.stem for path in CONFIG_FOLDER.glob("*.toml"))


def load_config(name_or_path: str) -> Config:
    """Load a config by name, by alias, or from a file.

    >>> load_config("resnet50-mk2").name
    'resnet50'
    """
    config = _load_shipped().get(name_or_path)
    if config is not None:
        return config
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return parse_config(read_toml(path), path.stem)
    raise TesseraError(
        "unknown config",
        got=name_or_path,
        allowed=[*list_configs(), "a .toml file"],
        do=suggest_similar(name_or_path, _load_shipped()),
    )


def parse_config(data: Mapping[str, Any], name: str) -> Config:
    """Check the content of a config file and return the config."""
    for key in data:
        if key not in CONFIG_FIELDS:
            do = (
                "write it under [settings]"
                if key in Settings.__dataclass_fields__
                else suggest_similar(key, CONFIG_FIELDS)
            )
            raise TesseraError(f"config {name}: unknown field", got=key, allowed=CONFIG_FIELDS, do=do)
    settings = data.get("settings", {})
    if not isinstance(settings, Mapping) or not settings:
        raise TesseraError(f"config {name} has no settings", do="write them under [settings]")
    try:
        Settings.of(settings)
    except TesseraError as error:
        raise TesseraError(f"config {name}: {error}") from None
    return Config(
        name=name,
        title=str(data.get("title", name)),
        settings=settings,
        aliases=tuple(_read_list(data, "aliases", str, name)),
        batch_sizes=tuple(_read_list(data, "batch_sizes", int, name)),
        iterations=_read_iterations(data, name),
    )


def _read_list(data: Mapping[str, Any], key: str, kind: type, name: str) -> list[Any]:
    values = data.get(key, [])
    if (
        not isinstance(values, list)
        or not all(type(value) is kind for value in values)
        or (kind is int and any(value < 1 for value in values))
    ):
        allowed = "a list of names" if kind is str else "a list of integers of 1 or more"
        raise TesseraError(f"config {name}: invalid value of {key}", got=values, allowed=allowed)
    return values


def _read_iterations(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get("iterations")
    if value is not None and (type(value) is not int or value < 1):
        raise TesseraError(f"config {name}: invalid value of iterations", got=value, allowed="an integer of 1 or more")
    return value


@cache
def _load_shipped() -> Mapping[str, Config]:
    """Load all shipped configs; return a mapping from every name and alias to its config."""
    configs: dict[str, Config] = {}
    for name in list_configs():
        config = parse_config(read_toml(CONFIG_FOLDER / f"{name}.toml"), name)
        for each in (name, *config.aliases):
            assert each not in configs, f"two configs are called {each}"
            configs[each] = config
    return configs
