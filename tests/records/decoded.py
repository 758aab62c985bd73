"""Records decoded, with the shape of the batch checked on the way."""

import pyarrow as pa

from tidemill.records.decoding import arrow_schema, decode
from tidemill.rows.columns import EXTRA, RAW, REASON

NOTES = (RAW, REASON, EXTRA)
AVRO = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'


def decoded(form, values):
    """Rows as dicts, with the notes; the batch's shape is checked on the way."""
    batch = decode(form, [None] * len(values), values)
    assert batch.num_rows == len(values)
    batch.validate(full=True)
    assert batch.schema.names == [*arrow_schema(form).names, *NOTES]
    assert batch.schema.types[-3:] == [pa.binary(), pa.string(), pa.string()]
    return batch.to_pylist()
