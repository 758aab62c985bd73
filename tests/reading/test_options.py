import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidemill.reading.options import SourceOptions

SETTINGS = st.dictionaries(st.text(min_size=1), st.text())
SPARKS_REDACTION = re.compile("(?i)secret|password|token|access[.]?key")  # its default


@given(st.text(min_size=1), SETTINGS, SETTINGS, st.none() | st.binary())
def test_options_come_back_as_they_went(source, catalog, log, transform):
    """Also keys that differ in their case alone: Spark's own map would unite them."""
    made = SourceOptions(Path("/runs/r"), source, catalog, log, transform)
    sent = {key.lower(): value for key, value in made.to_spark().items()}
    assert SourceOptions.from_spark(sent) == made


def test_what_may_be_secret_is_not_shown():
    made = SourceOptions(
        Path("/runs/r"),
        "plays",
        catalog={"s3.secret-access-key": "hunter2"},
        log={"client": {"sasl.password": "hunter2"}, "root": "s3://key:hunter2@bucket"},
        transform=b"hunter2",
    )
    assert repr(made) == "SourceOptions(run=PosixPath('/runs/r'), source='plays')"
    plain = {k: v for k, v in made.to_spark().items() if not SPARKS_REDACTION.search(k)}
    assert plain == {"run": "/runs/r", "source": "plays"}
