"""All operators as users import them, in one place."""

# ruff: noqa: PLC0414 (an alias says that a name is here for others)

from tidemill.folds.matching.as_of import as_of as as_of
from tidemill.folds.matching.attribute import attribute as attribute
from tidemill.folds.matching.deduplicate import deduplicate as deduplicate
from tidemill.folds.own.custom import fold as fold
from tidemill.folds.own.process import process as process
from tidemill.folds.own.processor import Context as Context
from tidemill.folds.own.processor import Processor as Processor
from tidemill.folds.own.udf import udf as udf
from tidemill.folds.windowed.sessions import sessions as sessions
from tidemill.folds.windowed.top_n import top_n as top_n
from tidemill.folds.windowed.unique_counts import unique_counts as unique_counts
from tidemill.folds.windowed.windows import windows as windows
