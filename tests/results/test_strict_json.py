import json

import pytest
from hypothesis import given

from tessera.results import strict_json
from tests.results.synthetic import exactly, plain


@given(plain)
def test_every_plain_value_comes_back(value: object) -> None:
    assert exactly(strict_json.loads(strict_json.dumps(value))) == exactly(value)


@given(plain)
def test_the_text_is_json_for_every_reader(value: object) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(strict_json.dumps(value), parse_constant=refuse)


def test_bare_words_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        strict_json.loads("[NaN]")
