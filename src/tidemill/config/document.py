"""The YAML file as written: its values, the line of every path, and what must stay secret."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from tidemill.errors import ConfigError

_HIDDEN = "***"
TOO_SHORT = 2
"""A secret of so few letters is not hidden: it would hide more than itself."""

_BARE = re.compile(r":\s*>=?\s*\d")
"""A comparison such as ``rows: > 0``: at the beginning of a value, YAML takes > for its own."""

_VARIABLE = re.compile(r":\s*(\$\{[^}\s]*\}[^\s,}\]]*)")
"""A variable without quotes, ``uri: ${URI}``: within braces YAML takes its { for its own."""


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, as they are or inside of JSON."""
    for secret in sorted(secrets, key=len, reverse=True):
        for shape in {secret, json.dumps(secret)[1:-1]} if len(secret) > TOO_SHORT else ():
            text = text.replace(shape, _HIDDEN)
    return text


class Document:
    """The values and the node tree of a YAML file. Secrets are added as they are found."""

    def __init__(self, path: Path) -> None:
        """Read the file; what is not YAML is an error with its line."""
        self.path = path
        self.secrets: set[str] = set()
        text = _read(path)
        try:
            self.root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
            _refuse_repeated_keys(self.root, path)
            self.values = _construct(self.root)
        except RecursionError:
            problem = "it is nested too deep, or an anchor holds itself"
            raise ConfigError(f"not valid YAML: {problem}", where=str(path)) from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or str(error)
            at = text.splitlines()[mark.line : mark.line + 1] if mark else []
            where, fix = f"{path}{line}", _quote_it(at[0] if at else "")
            raise ConfigError(f"not valid YAML: {problem}", where=where, fix=fix) from None

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
        message, fix = hide(message, self.secrets), hide(fix, self.secrets)
        return ConfigError(message, where=place, fix=fix, path=dotted)


def _quote_it(line: str) -> str:
    """What to put in quotes in a line that is not YAML."""
    variable = _VARIABLE.search(line)
    if variable is not None:
        return f'put the variable in quotes: "{variable[1]}"'
    return "put the comparison in quotes: '> 0'" if _BARE.search(line) else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {path.name} in {path.parent}",
            fix="run 'tidemill init' in an empty folder, or say --config FILE",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from None


def _refuse_repeated_keys(node: yaml.Node | None, path: Path) -> None:
    """YAML's last-one-wins would silently lose a section."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            _refuse_repeated_keys(value, path)
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise ConfigError(
                    f"the key {key.value!r} is given twice",
                    where=f"{path}:{key.start_mark.line + 1}",
                    fix="keep one of them",
                )
            seen.add(key.value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value, path)


class _Loader(yaml.SafeLoader):
    """Says the line also of values that Python refuses, such as the date 2026-13-45."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"{node.value!r} cannot be read: {error}"
            raise ConstructorError(None, None, problem, node.start_mark) from None


def _construct(root: yaml.Node | None) -> Any:
    if root is None:
        return {}
    loader = _Loader("")
    try:
        return loader.construct_document(root)
    finally:
        loader.dispose()
