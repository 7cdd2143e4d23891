"""What is tried within the memory that is free: a denial is a refusal with its reason, and the limit goes away."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch

from tessera.errors import Refused, TesseraError
from tessera.operators import attempt
from tessera.operators.attempt import attempting, limited
from tessera.operators.cases import cases
from tessera.operators.preparation import prepare

MIB = 1 << 20


def test_no_more_is_given_than_is_allowed_and_the_limit_goes_away_again():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited(64 * MIB):
        np.ones(32 * MIB, np.uint8)
        with pytest.raises(MemoryError):
            np.ones(2048 * MIB, np.uint8)
        with pytest.raises(RuntimeError, match="allocate memory"):
            torch.empty(2048 * MIB, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    np.ones(128 * MIB, np.uint8)


def test_a_limit_that_is_there_already_is_kept():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited(256 * MIB):
        outer = resource.getrlimit(resource.RLIMIT_DATA)
        with limited(1024 * MIB):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= outer[0]
        assert resource.getrlimit(resource.RLIMIT_DATA) == outer
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(("name", "backend"), [("outer", "torch"), ("outer", "numpy"), ("cartesian_prod", "torch")])
def test_small_inputs_with_large_outputs_are_refused(monkeypatch, name, backend):
    monkeypatch.setattr(attempt, "available", lambda: 256 * MIB)
    vectors = dict.fromkeys(("lhs", "rhs") if name == "outer" else ("first", "second"), (16_000,))
    (case,) = cases([name], backend=[backend], size=["small"], passes=["forward"], inputs=vectors)
    with pytest.raises(Refused, match=r"it takes more memory than the 0\.2 GiB that are free: .*llocate"):
        prepare(case)


def test_what_a_library_says_is_one_line_and_our_own_errors_stay_as_they_are():
    with pytest.raises(Refused, match=r"^it does not run: first$"), attempting("it does not run"):
        raise ValueError("first\nsecond")
    with pytest.raises(TesseraError, match="as it is"), attempting("it does not run"):
        raise TesseraError("as it is")
