"""Agreement: engines that give something else are found, whatever it is."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.inference.agreement import agreement
from tests.inference.sessions import QUICK, opened, small


@pytest.mark.parametrize("name", [name for name in QUICK if name.startswith("torch")])
def test_a_session_with_other_weights_is_refused(name):
    settings = small(engine=name)
    with opened(settings) as session, opened(small(engine=name, batch_size=settings.batch_size)) as other:
        agreement(settings, session)
        object.__setattr__(session, "session", other.session)
        with pytest.raises(Refused, match="does not agree with torch eager"):
            agreement(settings, session)


@pytest.mark.parametrize("name", QUICK)
def test_outputs_that_are_not_numbers_are_refused(name):
    settings = small("not_a_number", engine=name)
    with opened(settings) as session, pytest.raises(Refused, match="finite"):
        agreement(settings, session)


def test_a_large_batch_is_checked_in_part_and_a_small_one_several_times():
    for size in (1, 3, 50):
        settings = small(engine="torch-eager", batch_size=size)
        with opened(settings) as session:
            found = agreement(settings, session)
            assert found.images == 8
            assert np.isfinite(found.error)
