"""Tests that the agreement check detects engines with wrong outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.inference.agreement import check_agreement
from tests.inference.sessions import QUICK_ENGINES, make_small_settings, open_small_session


@pytest.mark.parametrize("name", [name for name in QUICK_ENGINES if name.startswith("torch")])
def test_a_session_with_other_weights_is_refused(name):
    settings = make_small_settings(engine=name)
    with (
        open_small_session(settings) as session,
        open_small_session(make_small_settings(engine=name, batch_size=settings.batch_size)) as other,
    ):
        check_agreement(settings, session)
        object.__setattr__(session, "session", other.session)
        with pytest.raises(Refused, match="does not agree with torch eager"):
            check_agreement(settings, session)


@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_nan_outputs_are_refused(name):
    settings = make_small_settings("build_nan_network", engine=name)
    with open_small_session(settings) as session, pytest.raises(Refused, match="finite"):
        check_agreement(settings, session)


def test_large_batches_are_checked_partly_and_small_batches_repeatedly():
    for size in (1, 3, 50):
        settings = make_small_settings(engine="torch-eager", batch_size=size)
        with open_small_session(settings) as session:
            agreement_result = check_agreement(settings, session)
            assert agreement_result.images == 8
            assert np.isfinite(agreement_result.error)
