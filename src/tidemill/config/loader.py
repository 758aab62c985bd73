"""Read tidemill.yaml: every mistake with file, line, YAML path, and the nearest right word."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tidemill.config.project import ProjectConfig
from tidemill.config.stream import IcebergArchive
from tidemill.errors import ConfigError, nearest

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HIDDEN = "***"
_TOO_SHORT = 2


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
        return _hide(text, self.secrets)


def _hide(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets; one of two letters would hide more than itself."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN) if len(secret) > _TOO_SHORT else text
    return text


def load_config(path: str | Path) -> LoadedConfig:
    """Read and check a YAML file. Nothing is imported, no Spark, no catalog is opened."""
    path = Path(path).absolute()
    root = _parse(path)
    document = _Document(path, root)
    raw = _substitute(_construct(root), document, ())
    if not isinstance(raw, dict):
        raise document.error((), "the file must be a mapping with streams: and pipelines:")
    try:
        config = ProjectConfig.model_validate(raw)
    except ValidationError as error:
        raise _explain(error, document) from None
    _check_names(config, document)
    secrets = frozenset(secret for secret in document.secrets if len(secret) > _TOO_SHORT)
    return LoadedConfig(path, config, secrets)


def _parse(path: Path) -> yaml.Node | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {path.name} in {path.parent}",
            fix="run 'tidemill init' in an empty folder, or say --config FILE",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from None
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(root, path)
        return root
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"not valid YAML: {problem}", where=f"{path}{line}") from None


def _refuse_repeated_keys(node: yaml.Node | None, path: Path) -> None:
    """YAML's last-one-wins would silently lose a section."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise ConfigError(
                    f"the key {key.value!r} is given twice",
                    where=f"{path}:{key.start_mark.line + 1}",
                    fix="keep one of them",
                )
            seen.add(key.value)
            _refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value, path)


def _construct(root: yaml.Node | None) -> Any:
    if root is None:
        return {}
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(root)
    finally:
        loader.dispose()


class _Document:
    """The node tree of a YAML file: it knows the line of every path, and what to keep secret."""

    def __init__(self, path: Path, root: yaml.Node | None) -> None:
        self.path = path
        self.root = root
        self.secrets: set[str] = set()

    def line(self, keys: tuple[str | int, ...]) -> int:
        """The line of the deepest part of the path that exists."""
        node, line = self.root, 1
        for key in keys:
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if pair[0].value == str(key)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
                node = node.value[key]
                line = node.start_mark.line + 1
            else:
                break
        return line

    def error(self, keys: tuple[str | int, ...], message: str, fix: str = "") -> ConfigError:
        """A ConfigError that names file, line and YAML path."""
        dotted = ".".join(str(key) for key in keys)
        place = f"{self.path}:{self.line(keys)}" + (f" ({dotted})" if dotted else "")
        message, fix = _hide(message, self.secrets), _hide(fix, self.secrets)
        return ConfigError(message, where=place, fix=fix, path=dotted)


def _substitute(value: Any, document: _Document, keys: tuple[Any, ...]) -> Any:
    """Replace ${ENV_VAR} in strings; what came from the environment counts as secret."""
    if isinstance(value, dict):
        return {k: _substitute(v, document, (*keys, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_substitute(v, document, (*keys, i)) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def read(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise document.error(
                keys, f"the environment variable {match[1]} is not set", f"export {match[1]}=…"
            )
        document.secrets.add(found)
        return found

    return _VARIABLE.sub(read, value)


def _explain(error: ValidationError, document: _Document) -> ConfigError:
    """The first mistake in the words of the file."""
    first = error.errors(include_url=False)[0]
    keys = tuple(part for part in first["loc"] if part not in ("iceberg", "parquet"))
    found = first.get("input")
    if first["type"] == "extra_forbidden":
        allowed = _allowed_keys(ProjectConfig, tuple(first["loc"][:-1]))
        return document.error(keys, f"unknown key {keys[-1]!r}", nearest(str(keys[-1]), allowed))
    if first["type"] == "missing":
        return document.error(keys[:-1], f"the key {keys[-1]!r} is missing")
    if first["type"].startswith("union_tag"):
        tag = found.get("type") if isinstance(found, dict) else found
        problem = "the key 'type' is missing" if tag is None else f"unknown type {tag!r}"
        return document.error(keys, problem, nearest(str(tag), ["iceberg", "parquet"]))
    if first["type"] == "value_error":
        message, _, fix = str(first["ctx"]["error"]).partition("; ")
        return document.error(keys, message, fix)
    message = first["msg"][0].lower() + first["msg"][1:]
    shown = "" if isinstance(found, dict | list) else f", found {found!r}"
    fix = "put it in quotes: YAML reads on, off, yes, no and numbers as what they look like"
    is_word = first["type"] == "string_type" and isinstance(found, bool | int | float | date)
    return document.error(keys, f"{message}{shown}", fix if is_word else "")


def _allowed_keys(model: type[BaseModel], keys: tuple[Any, ...]) -> list[str]:
    """The keys a section takes, found by walking the models along a path of the file."""
    current: list[type[BaseModel]] = [model]
    for key in keys:
        following: list[type[BaseModel]] = []
        for candidate in current:
            field = candidate.model_fields.get(str(key))
            following += list(_models_in(field.annotation)) if field else []
        tagged = [m for m in current if key in ("iceberg", "parquet") and _tag(m) == key]
        current = tagged or following or current
    return [
        field.alias or name
        for candidate in current
        for name, field in candidate.model_fields.items()
    ]


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("type")
    return next(iter(getattr(field.annotation, "__args__", ())), "") if field else ""


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _require_namespace(document: _Document, keys: tuple[str, ...], table: str) -> None:
    if table.count(".") < 1 or not all(table.split(".")):
        example = f"marts.{table.strip('.') or keys[-2]}"
        raise document.error(
            keys,
            f"{table!r} has no namespace",
            f"write namespace.table, for example {example}",
        )


def _check_names(config: ProjectConfig, document: _Document) -> None:
    """Names that refer to other parts of the file; what code refers to is checked later."""
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
        for output, sink in pipeline.sinks.items():
            _require_namespace(document, (*at, "sinks", output, "table"), sink.table)
        tables = [sink.table for sink in pipeline.sinks.values()]
        for table in tables:
            if tables.count(table) > 1:
                raise document.error(
                    (*at, "sinks"), f"two outputs write the table {table!r}", "give each its own"
                )
    for name, stream_config in config.streams.items():
        if not name.isidentifier():
            raise document.error(
                ("streams", name),
                f"{name!r} cannot be a parameter's name",
                "use a_b instead of a-b",
            )
        archive = stream_config.archive
        if isinstance(archive, IcebergArchive):
            _require_namespace(document, ("streams", name, "archive", "table"), archive.table)
        if archive is None and stream_config.live is None:
            raise document.error(
                ("streams", name), "the stream has neither archive: nor live:", "give it one"
            )
