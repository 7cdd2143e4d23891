"""Settings under a name: those that come with Tessera, and files of one's own.

A config is a TOML file: a `title`, `aliases`, the `batch_sizes` and `iterations` of a sweep, and the `[settings]`,
whose names are the options of `tessera infer` with `_` for `-`. Whatever is given on the command line comes before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.inference.settings import Settings
from tessera.machine.toml import read_toml

FOLDER = Path(__file__).parent
FIELDS = ("title", "aliases", "batch_sizes", "iterations", "settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings with a name. `batch_sizes` and `iterations` are those of the sweep that it was made for."""

    name: str
    title: str
    settings: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    iterations: int | None = None

    def with_values(self, **given: Any) -> Settings:
        """The settings, with some values given instead."""
        return Settings.of({**self.settings, **given})


def config_names() -> list[str]:
    """The configs that come with Tessera.

    >>> config_names()[:3]
    ['efficientnet-b0', 'efficientnet-b0-g16', 'efficientnet-b4']
    """
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_config(name_or_path: str) -> Config:
    """A config by its name, by another name that it goes by, or from a file.

    >>> load_config("resnet50-mk2").name
    'resnet50'
    """
    found = _shipped().get(name_or_path)
    if found is not None:
        return found
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return parse_config(read_toml(path), path.stem)
    raise TesseraError(
        "unknown config",
        got=name_or_path,
        allowed=[*config_names(), "a .toml file"],
        do=did_you_mean(name_or_path, _shipped()),
    )


def parse_config(data: Mapping[str, Any], name: str) -> Config:
    """Check what stands in a config file."""
    for key in data:
        if key not in FIELDS:
            do = "write it under [settings]" if key in Settings.__dataclass_fields__ else did_you_mean(key, FIELDS)
            raise TesseraError(f"config {name}: unknown field", got=key, allowed=FIELDS, do=do)
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
        aliases=tuple(_list(data, "aliases", str, name)),
        batch_sizes=tuple(_list(data, "batch_sizes", int, name)),
        iterations=_iterations(data, name),
    )


def _list(data: Mapping[str, Any], key: str, kind: type, name: str) -> list[Any]:
    found = data.get(key, [])
    if (
        not isinstance(found, list)
        or not all(type(one) is kind for one in found)
        or (kind is int and any(one < 1 for one in found))
    ):
        raise TesseraError(f"config {name}: {key}", got=found, allowed="names" if kind is str else "sizes of 1 or more")
    return found


def _iterations(data: Mapping[str, Any], name: str) -> int | None:
    found = data.get("iterations")
    if found is not None and (type(found) is not int or found < 1):
        raise TesseraError(f"config {name}: iterations", got=found, allowed="1 or more")
    return found


@cache
def _shipped() -> Mapping[str, Config]:
    """Every config that comes with Tessera, by each of its names."""
    found: dict[str, Config] = {}
    for name in config_names():
        config = parse_config(read_toml(FOLDER / f"{name}.toml"), name)
        for each in (name, *config.aliases):
            assert each not in found, f"two configs are called {each}"
            found[each] = config
    return found
