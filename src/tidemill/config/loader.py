"""Read tidemill.yaml: every mistake with file, line, YAML path, and the nearest right word."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidemill.config.document import TOO_SHORT, Document, hide
from tidemill.config.mistakes import explain
from tidemill.config.pipeline import PipelineConfig
from tidemill.config.places import find_loop, shared_archive
from tidemill.config.project import ProjectConfig
from tidemill.config.sink import Place
from tidemill.config.sparksettings import refused
from tidemill.errors import nearest

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class LoadedConfig:
    """A checked configuration, the folder its paths are relative to, and what must stay secret."""

    path: Path
    config: ProjectConfig
    secrets: frozenset[str]

    @property
    def base(self) -> Path:
        """The folder of the YAML."""
        return self.path.parent

    @property
    def home(self) -> Path:
        """Where runs, checkpoints and the registry are kept."""
        return self.base / self.config.home

    def redact(self, text: str) -> str:
        """The text without any value that came from the environment."""
        return hide(text, self.secrets)


def load_config(path: str | Path) -> LoadedConfig:
    """Read and check a YAML file. Nothing is imported, no Spark, no catalog is opened."""
    path = Path(path).absolute()
    document = Document(path)
    raw = _substitute(document.values, document, ())
    if not isinstance(raw, dict):
        raise document.error((), "the file must be a mapping with streams: and pipelines:")
    try:
        config = ProjectConfig.model_validate(raw)
    except ValidationError as error:
        raise explain(error, document) from None
    _check_names(config, document)
    secrets = frozenset(secret for secret in document.secrets if len(secret) > TOO_SHORT)
    return LoadedConfig(path, config, secrets)


def _substitute(value: Any, document: Document, keys: tuple[Any, ...]) -> Any:
    """Replace ${NAME} and ${NAME:-default}; what came from the environment counts as secret."""
    if isinstance(value, dict):
        return {k: _substitute(v, document, (*keys, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_substitute(v, document, (*keys, i)) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def read(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None and match[2] is not None:
            return match[2]
        if found is None:
            raise document.error(
                keys, f"the environment variable {match[1]} is not set", f"export {match[1]}=…"
            )
        document.secrets.add(found)
        return found

    return _VARIABLE.sub(read, value)


def _require_namespace(document: Document, keys: tuple[str, ...], table: str) -> None:
    if table.count(".") < 1 or not all(table.split(".")):
        example = f"marts.{table.strip('.') or keys[-2]}"
        raise document.error(
            keys,
            f"{table!r} has no namespace",
            f"write namespace.table, for example {example}",
        )


def _check_sinks(pipeline: PipelineConfig, document: Document, at: tuple[str, ...]) -> None:
    places: set[Place] = set()
    for sink in pipeline.sinks.values():
        written = sink.writes(sink.target)
        for place in (each for each in written if each in places):
            raise document.error(at, f"two outputs write {written[place]}", "give each its own")
        places |= written.keys()


def _check_params(pipeline: str, frames: dict[str, str], document: Document) -> None:
    """Their names are those of arguments; their values are kept and shown, and hold no secret."""
    for name, value in (document.values["pipelines"][pipeline].get("params") or {}).items():
        at = ("pipelines", pipeline, "params", name)
        if not name.isidentifier():
            fix = "use a_b instead of a-b"
            raise document.error(at, f"{name!r} cannot be an argument's name", fix)
        if name in frames:
            message = f"{name!r} is the name of a {frames[name]} and of a parameter"
            raise document.error(at, message, "give the parameter another name")
        if isinstance(value, str) and _VARIABLE.search(value):
            raise document.error(
                at,
                "a parameter is kept in the manifest and shown, and what comes from the "
                "environment may be a secret",
                f'give it with the command: --param {name}="$NAME"',
            )


def _check_names(config: ProjectConfig, document: Document) -> None:
    """Names that refer to other parts of the file; what code refers to is checked later."""
    for setting, given in refused(config.spark.conf):
        raise document.error(
            ("spark", "conf", setting.key),
            f"{setting.key} is {given}: {setting.reason}",
            setting.fix,
        )
    for name, pipeline in config.pipelines.items():
        at = ("pipelines", name)
        for source, settings in pipeline.sources.items():
            stream = settings.stream or source
            if stream not in config.streams:
                raise document.error(
                    (*at, "sources", source),
                    f"the stream {stream!r} is not defined",
                    nearest(stream, config.streams),
                )
        frames = dict.fromkeys([*config.streams, *pipeline.sources], "stream")
        _check_params(name, dict.fromkeys(config.tables, "table") | frames, document)
        _check_sinks(pipeline, document, (*at, "sinks"))
        if pipeline.instances is not None:
            place = (*at, "instances", "table")
            _require_namespace(document, place, pipeline.instances.table)
        loop = find_loop(config.streams, pipeline, pipeline.sources)
        if loop is not None:  # sources that only code names are checked later
            raise document.error((*at, "sinks"), loop, "write elsewhere")
    for name, stream_config in config.streams.items():
        if not name.isidentifier():
            raise document.error(
                ("streams", name),
                f"{name!r} cannot be an argument's name",
                "use a_b instead of a-b",
            )
        archive = stream_config.archive
        table = None if archive is None else archive.as_table()
        if table is not None:
            _require_namespace(document, ("streams", name, "archive", "table"), table.table)
        if archive is None and stream_config.live is None:
            raise document.error(
                ("streams", name), "the stream has neither archive: nor live:", "give it one"
            )
    _check_archives(config, document)
    _check_tables(config, document)


def _check_tables(config: ProjectConfig, document: Document) -> None:
    """An argument has one meaning: a table must not have the name of a stream."""
    sources = {name for pipeline in config.pipelines.values() for name in pipeline.sources}
    for name in config.tables:
        at = ("tables", name)
        if not name.isidentifier():
            fix = "use a_b instead of a-b"
            raise document.error(at, f"{name!r} cannot be an argument's name", fix)
        if name in config.streams or name in sources:
            message = f"{name!r} is the name of a stream and of a table"
            raise document.error(at, message, "give the table another name")


def _check_archives(config: ProjectConfig, document: Document) -> None:
    """A table follows one topic: it says at which offsets that topic goes on."""
    found = shared_archive(config.streams)
    if found is None:
        return
    first, second, table = found
    raise document.error(
        ("streams", second, "archive", "table"),
        f"the streams {first!r} and {second!r} have different topics and one archive, the table "
        f"{table!r}: a table follows one topic, the records of the other would be lost",
        "give each stream its own archive table; a pipeline can read both and unite them",
    )
