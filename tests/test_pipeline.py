import pytest

from tidemill import pipeline
from tidemill.errors import ConfigError


def test_parameters_name_the_streams_and_the_function_stays_callable():
    @pipeline
    def plays(impressions, playbacks):
        return (impressions, playbacks)

    assert plays.name == "plays"
    assert plays.streams == ("impressions", "playbacks")
    assert plays("a", playbacks="b") == ("a", "b")


def test_a_pipeline_must_read_something():
    with pytest.raises(ConfigError, match="the pipeline nothing reads no stream"):

        @pipeline
        def nothing():
            return None


@pytest.mark.parametrize("code", ["lambda *streams: None", "lambda a, **streams: None"])
def test_every_stream_has_a_parameter_of_its_own(code):
    with pytest.raises(ConfigError, match=r"takes \*streams"):
        pipeline(eval(code))
