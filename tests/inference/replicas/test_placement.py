"""Tests of the placement of replicas: options, refusals, and environment variables."""

from __future__ import annotations

import pytest

from tessera.errors import Refused, TesseraError
from tessera.inference.replicas.placement import Placement, count_cores, parse_env_options
from tessera.launch import LaunchConfig


def test_more_replicas_than_cores_are_refused_unless_forced():
    wide = Placement(num_replicas=2, cores_per_replica=2)
    assert wide.check(available=4) == ()
    with pytest.raises(Refused, match=r"2 replicas of 2 cores each on 3 cores.*--force"):
        wide.check(available=3)
    forced = Placement(num_replicas=2, cores_per_replica=2, force=True)
    (warning,) = forced.check(available=3)
    assert "share cores" in warning


def test_the_launch_keeps_the_options_of_the_run():
    base = LaunchConfig(pin=False, allocator="system", tag_output=True, env={"A": "1", "B": "1"})
    result = Placement(num_replicas=3, cores_per_replica=2, env={"B": "2"}).build_launch(base)
    assert (result.spawn, result.workers, result.threads) == ("processes", 3, 2)
    assert (result.pin, result.allocator, result.tag_output) == (False, "system", True)
    assert result.env == {"A": "1", "B": "2"}


@pytest.mark.parametrize("field", ["num_replicas", "cores_per_replica"])
@pytest.mark.parametrize("value", [0, -1, "2", 1.5, True])
def test_numbers_of_replicas_and_cores_must_be_positive_integers(field, value):
    with pytest.raises(TesseraError, match=f"--{field.replace('_', '-')}"):
        Placement(**{field: value})


def test_variables_are_given_by_name_or_with_a_value():
    assert parse_env_options(["HERE", "NEW=a=b", "EMPTY="], {"HERE": "x"}) == {"HERE": "x", "NEW": "a=b", "EMPTY": ""}
    with pytest.raises(TesseraError, match="not set: got 'GONE'"):
        parse_env_options(["GONE"], {})
    with pytest.raises(TesseraError, match="NAME or NAME=VALUE"):
        parse_env_options(["=x"], {})


def test_force_is_a_case_parameter_only_if_it_has_an_effect():
    assert "force" not in Placement(force=True).params()
    assert Placement(num_replicas=10_000, force=True).params()["force"] is True


def test_replicas_that_share_cores_use_only_the_available_cores():
    available = count_cores()
    assert Placement(num_replicas=3 * available, force=True).used_cores == available
    assert Placement(num_replicas=1).used_cores == 1
