"""Tests of the registry of features: every hook exists and has the declared signature."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from tessera.errors import TesseraError
from tessera.launch.fresh import load_object
from tessera.suites.features import FEATURES, get_feature

HOOKS = [
    (name, field.name, getattr(feature, field.name))
    for name, feature in FEATURES.items()
    for field in fields(feature)
    if field.name != "title" and getattr(feature, field.name)
]


@pytest.mark.parametrize(("feature", "hook", "target"), HOOKS)
def test_every_hook_is_a_function(feature, hook, target):
    assert callable(load_object(target))
    if hook == "run":
        assert list(inspect.signature(load_object(target)).parameters) == ["context", "case", "sampling"]


def test_an_unknown_feature_is_an_error_that_lists_the_others():
    with pytest.raises(TesseraError, match="unknown feature: got 'opps'; allowed: ops, ab"):
        get_feature("opps")
