import json

import pytest

from tidemill.config.document import hide
from tidemill.errors import ConfigError

SECRETS = ["hunter2", 'quo"te\\d', "schlüssel"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_hidden_as_it_is_and_inside_of_json(secret):
    line = ConfigError(f"s3://anna:{secret}@lake").line()
    for text in (f"uri {secret}!", json.dumps({"uri": secret}), line):
        hidden = hide(text, SECRETS)
        assert "***" in hidden
        assert secret not in hidden and json.dumps(secret)[1:-1] not in hidden


def test_a_secret_of_two_letters_would_hide_more_than_itself():
    assert hide("an apple", ["an"]) == "an apple"
