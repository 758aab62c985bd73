"""The blocks of docs/review.md, over runs without Spark."""

import re
import shlex
from pathlib import Path

import pyarrow as pa

from tests.review.stage import LIVE, PRODUCTION, RUN, SHADOW, Review, at
from tidemill.runtime.registry import BatchRecord
from tidemill.types import to_micros

PAGE = (Path(__file__).parents[2] / "docs" / "review.md").read_text("utf-8")
SCHEMA = pa.schema(
    [
        *(("at", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("word", pa.string())),
        *(("seconds", pa.float64()), ("made_at", pa.int64())),
    ]
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE)


def test_every_block_runs(tmp_path: Path) -> None:
    review = Review(Review.make(tmp_path).stage, SCHEMA)
    rows = [{"at": at(n), "key": n, "word": "w", "seconds": 1.0, "made_at": n} for n in range(60)]
    wrong = [each | ({"word": "bug"} if each["key"] < 20 else {}) for each in rows]
    review.write(review.run(RUN, SHADOW, hours=1), rows)
    review.write(review.run(LIVE, PRODUCTION, ends=False), wrong, at(24 * 60))
    beyond = to_micros(at(24 * 60))
    batch = BatchRecord(0, beyond, beyond // 1_000, 1, 0, 0, 1, 0, 0.0)
    review.project.registry.record_batch(LIVE, batch)
    for bash in blocks("bash"):
        for line in bash.splitlines():
            names = {"fix": RUN, "marts.plays": PRODUCTION}
            words = [names.get(word, word) for word in shlex.split(line)[1:]]
            if words[0] == "backfill":
                continue  # it has run
            done = review.cli(*words)
            assert done.code == 0, (line, done.out, done.err)
    assert (tmp_path / "review.html").exists()
    code = "\n".join(blocks("python"))
    exec(code.replace('"fix"', repr(RUN)), {"project": review.project})
