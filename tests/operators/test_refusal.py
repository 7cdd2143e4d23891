"""Tests of the memory limit of a case: a failed allocation becomes a refusal, and the limit is removed afterwards."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch

from tessera.errors import Refused, TesseraError
from tessera.operators import refusal
from tessera.operators.cases import cases
from tessera.operators.preparation import prepare_operator
from tessera.operators.refusal import limit_memory, refusing_errors

MIB = 1 << 20


def test_memory_limit_applies_and_is_removed_afterwards():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limit_memory(64 * MIB):
        np.ones(32 * MIB, np.uint8)
        with pytest.raises(MemoryError):
            np.ones(2048 * MIB, np.uint8)
        with pytest.raises(RuntimeError, match="allocate memory"):
            torch.empty(2048 * MIB, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    np.ones(128 * MIB, np.uint8)


def test_existing_memory_limit_is_preserved():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limit_memory(256 * MIB):
        outer = resource.getrlimit(resource.RLIMIT_DATA)
        with limit_memory(1024 * MIB):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= outer[0]
        assert resource.getrlimit(resource.RLIMIT_DATA) == outer
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(("name", "backend"), [("outer", "torch"), ("outer", "numpy"), ("cartesian_prod", "torch")])
def test_small_inputs_with_large_outputs_are_refused(monkeypatch, name, backend):
    monkeypatch.setattr(refusal, "get_available_bytes", lambda: 256 * MIB)
    vectors = dict.fromkeys(("lhs", "rhs") if name == "outer" else ("first", "second"), (16_000,))
    (case,) = cases([name], backend=[backend], size=["small"], passes=["forward"], inputs=vectors)
    with pytest.raises(Refused, match=r"it takes more memory than the 0\.2 GiB that are free: .*llocate"):
        prepare_operator(case)


def test_library_errors_become_one_line_and_tessera_errors_are_unchanged():
    with pytest.raises(Refused, match=r"^it does not run: first$"), refusing_errors("it does not run"):
        raise ValueError("first\nsecond")
    with pytest.raises(TesseraError, match="as it is"), refusing_errors("it does not run"):
        raise TesseraError("as it is")
