"""Tests of shipped configs, of config files of a user, and of errors in such files."""

from __future__ import annotations

import pytest

from tessera.errors import TesseraError
from tessera.inference.configs import list_configs, load_config
from tessera.inference.settings import Settings
from tessera.models import build_layers

SEED = {  # smallest and largest batch size, and input threads, of four existing command lines
    "resnet50": (1, 80, 64),
    "efficientnet-b0": (1, 48, 64),
    "efficientnet-b4": (1, 10, 0),
    "resnext101": (1, 16, 32),
}


@pytest.mark.parametrize("name", list_configs())
def test_every_config_loads_and_its_network_can_be_built(name):
    settings = Settings.of(load_config(name).settings)
    options = {key: value for key in ("group_dim", "expand_ratio") if (value := getattr(settings, key))}
    if settings.norm_type == "group":
        options["norm"] = "group"
    build_layers(settings.model, **options)


@pytest.mark.parametrize(("name", "sweep"), SEED.items())
def test_configs_contain_the_settings_of_existing_command_lines(name, sweep):
    config = load_config(f"{name}-mk2")
    settings = Settings.of(config.settings)
    assert config.name == name
    assert (min(config.batch_sizes), max(config.batch_sizes), settings.num_io_tiles) == sweep
    assert config.iterations == 20
    assert (settings.precision, settings.norm_type, settings.normalization_location) == ("16.16", "batch", "device")
    assert settings.half_partial
    assert settings.eight_bit_io


def test_a_config_file_of_the_user_is_loaded(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "Mine"\nbatch_sizes = [1, 3]\n[settings]\nmodel = "vgg11"\nbatch_size = 3\n')
    config = load_config(str(path))
    assert (config.name, config.title, config.batch_sizes, config.iterations) == ("mine", "Mine", (1, 3), None)
    assert Settings.of(config.settings).batch_size == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 'vgg11'", "write it under [settings]"),
        ("titel = 'x'", "did you mean title?"),
        ("title = 'x'", "has no settings"),
        ("[settings]\nmodell = 'vgg11'", "did you mean model?"),
        ("[settings]\nbatch_size = 0", "config mine: --batch-size"),
        ("batch_sizes = [0]\n[settings]\nmodel = 'vgg11'", "batch_sizes"),
        ("iterations = 0\n[settings]\nmodel = 'vgg11'", "iterations"),
        ("[settings", "not a TOML file"),
    ],
)
def test_an_error_in_a_config_file_names_the_config(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TesseraError) as caught:
        load_config(str(path))
    assert words in str(caught.value)
    assert "mine" in str(caught.value)


def test_an_unknown_config_suggests_a_similar_name():
    with pytest.raises(TesseraError, match="did you mean resnet50"):
        load_config("resnet-50")
    with pytest.raises(TesseraError, match="file not found"):
        load_config("nowhere.toml")
