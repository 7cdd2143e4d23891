"""Where replicas run: what is asked for, what is refused, and what they find in their environment."""

from __future__ import annotations

import pytest

from tessera.errors import Refused, TesseraError
from tessera.inference.replicas.placement import Placement, passed_on
from tessera.launch import LaunchConfig


def test_more_replicas_than_cores_are_refused_unless_forced():
    wide = Placement(num_replicas=2, cores_per_replica=2)
    assert wide.check(available=4) == ()
    with pytest.raises(Refused, match=r"2 replicas of 2 cores each on 3 cores.*--force"):
        wide.check(available=3)
    forced = Placement(num_replicas=2, cores_per_replica=2, force=True)
    (warning,) = forced.check(available=3)
    assert "share cores" in warning


def test_the_launch_keeps_what_the_run_was_asked_for():
    base = LaunchConfig(pin=False, allocator="system", tag_output=True, env={"A": "1", "B": "1"})
    found = Placement(num_replicas=3, cores_per_replica=2, env={"B": "2"}).launch(base)
    assert (found.spawn, found.workers, found.threads) == ("processes", 3, 2)
    assert (found.pin, found.allocator, found.tag_output) == (False, "system", True)
    assert found.env == {"A": "1", "B": "2"}


@pytest.mark.parametrize("field", ["num_replicas", "cores_per_replica"])
@pytest.mark.parametrize("value", [0, -1, "2", 1.5, True])
def test_numbers_of_replicas_and_cores_are_whole_and_positive(field, value):
    with pytest.raises(TesseraError, match=f"--{field.replace('_', '-')}"):
        Placement(**{field: value})


def test_variables_are_passed_on_by_name_or_with_a_value():
    assert passed_on(["HERE", "NEW=a=b", "EMPTY="], {"HERE": "x"}) == {"HERE": "x", "NEW": "a=b", "EMPTY": ""}
    with pytest.raises(TesseraError, match="not set: got 'GONE'"):
        passed_on(["GONE"], {})
    with pytest.raises(TesseraError, match="NAME or NAME=VALUE"):
        passed_on(["=x"], {})


def test_force_is_part_of_a_case_only_where_it_changes_something():
    assert "force" not in Placement(force=True).params()
    assert Placement(num_replicas=10_000, force=True).params()["force"] is True
