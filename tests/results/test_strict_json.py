"""Tests of strict JSON: every plain value round-trips, and NaN and Infinity are not written as bare words."""

import json

import pytest
from hypothesis import given

from tessera.results import strict_json
from tests.results.synthetic import plain, to_exact_form


@given(plain)
def test_every_plain_value_round_trips(value: object) -> None:
    assert to_exact_form(strict_json.loads(strict_json.dumps(value))) == to_exact_form(value)


@given(plain)
def test_the_text_is_strict_json(value: object) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(strict_json.dumps(value), parse_constant=refuse)


def test_bare_words_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        strict_json.loads("[NaN]")
