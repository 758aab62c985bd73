"""Arrow files that appear whole or not at all, on any filesystem Arrow knows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pyarrow as pa
from pyarrow import fs


def write_whole(
    folder: str, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Write below a URI under a name of its own, then rename: a reader never sees a part.

    Two writers of one name do no harm if they write the same rows.
    """
    filesystem, base = fs.FileSystem.from_uri(folder)
    path = f"{base}/{name}"
    filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
    draft = f"{path}.{uuid.uuid4().hex}.tmp"
    with filesystem.open_output_stream(draft) as stream, pa.ipc.new_file(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    filesystem.move(draft, path)
