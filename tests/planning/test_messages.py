import json

import pytest

from tidemill.config.pins import SinkPin
from tidemill.errors import PlanError
from tidemill.planning.messages import MessageShape, check_messages


def schema(**kinds):
    return json.dumps({"fields": [{"name": name, "type": kind} for name, kind in kinds.items()]})


def array(kind):
    return {"type": "array", "elementType": kind}


def struct(**kinds):
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


def mapping(key, value):
    return {"type": "map", "keyType": key, "valueType": value}


def test_what_may_differ_in_its_last_digit_is_no_part_of_a_row_s_id():
    made = schema(
        show="long", mean="double", parts=array(struct(x="float")), tags=mapping("string", "long"),
        odd=mapping("string", "double"), price="decimal(10,2)",
    )  # fmt: skip
    shape = MessageShape.of(SinkPin("kafka", "kafka:t", made, "at", ("show",)))
    assert shape.key == ("show",)
    assert shape.time == "at"
    assert shape.ranked == ("mean", "parts")
    assert shape.identity == ("show", "tags", "odd", "price")
    assert shape.hashed == ("show", "price")


def test_what_a_message_holds():
    held = schema(
        a="long", b="decimal(38,18)", c="timestamp_ntz", d=array(struct(x="binary", y="void")),
        e=mapping("date", mapping("string", "double")), f="varchar(5)", g="double",
    )  # fmt: skip
    check_messages("output", held, ["a", "b", "c", "d"], "pipeline p")


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        ("variant", [], "the column 'x' of 'output' is of a type no message can hold: variant"),
        (array("interval day"), [], "no message can hold: interval day"),
        (mapping(struct(a="long"), "long"), [], "no message can hold: map with struct keys"),
        ("double", ["x"], "the key 'x' of the sink 'output' is a double: equal keys may be"),
        (struct(y=mapping("string", "long")), ["x"], "the key 'x' of the sink 'output' is a map"),
    ],
)
def test_what_no_message_holds(kind, key, message):
    with pytest.raises(PlanError) as raised:
        check_messages("output", schema(x=kind), key, "pipeline p")
    assert message in raised.value.message
    assert raised.value.fix.startswith("cast it")


def test_two_columns_of_one_name():
    twice = json.dumps({"fields": [{"name": "x", "type": "long"}] * 2})
    with pytest.raises(PlanError, match="has two columns named 'x', a message has one"):
        check_messages("output", twice, [], "pipeline p")
