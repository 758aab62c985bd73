"""Columns as Spark DDL writes them (``a long, b struct<c: string>``), read without Spark.

The types are Arrow's as Spark has them. Every column may be null: ``NOT NULL`` and ``COMMENT`` are
accepted and change nothing, because a record that cannot be decoded has null columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pyarrow as pa

from tidemill.errors import ConfigError, nearest
from tidemill.types import quoted

_SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_ALIASES = {
    "tinyint": "byte",
    "smallint": "short",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
TYPE_NAMES = frozenset((*_SIMPLE, *_ALIASES))
"""The names of types without parameters."""
_LIMITED_TEXT = {"char", "character", "varchar"}
_MAX_PRECISION = 38
_MAX_DEPTH = 50
_FORMS = {"array": "array<type>", "map": "map<type, type>", "struct": "struct<name: type>"}
_TYPES = {*TYPE_NAMES, "decimal", *_FORMS}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"""\s*(?:
      `(?P<quoted>(?:[^`]|``)+)`
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9]+)
    | (?P<mark>[<>(),:])
    | (?P<unreadable>.+)
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse_columns(text: str) -> pa.Schema:
    """The columns of a DDL text."""
    return pa.schema(_Ddl(text).columns())


def parse_type(text: str) -> pa.DataType:
    """The type that a DDL text names; nothing may follow it."""
    return _Ddl(text).only_type()


def write_columns(columns: pa.Schema) -> str:
    """The same columns as DDL, for types that :func:`parse_columns` knows."""
    return ", ".join(f"{name_text(field.name)} {type_text(field.type)}" for field in columns)


def type_text(kind: pa.DataType) -> str:
    """A type as DDL writes it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        parts = (f"{name_text(field.name)}: {type_text(field.type)}" for field in kind)
        return f"struct<{', '.join(parts)}>"
    return _NAMES[kind]


def name_text(name: str) -> str:
    """A column's name as DDL writes it."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


class _Token(NamedTuple):
    kind: str  # quoted, text, word, number, mark, end
    text: str

    @property
    def keyword(self) -> str:
        """The word in lower case; empty for other tokens."""
        return self.text.lower() if self.kind == "word" else ""


_END = _Token("end", "")


class _Ddl:
    """Parses one text from left to right; ``_ahead`` is the next token."""

    def __init__(self, text: str) -> None:
        self._path: list[str] = []
        self._tokens = iter(list(self._split(text.strip())))
        self._ahead = next(self._tokens, _END)

    def columns(self) -> list[pa.Field]:
        if self._ahead == _END:
            self._refuse("no columns are written", "write for example 'id long, at timestamp'")
        return self._fields(_END, "the end")

    def only_type(self) -> pa.DataType:
        kind = self._type()
        if self._ahead != _END:
            self._refuse(f"{self._found()} after the type", "write one type, such as array<string>")
        return kind

    def _split(self, text: str) -> Iterator[_Token]:
        for found in _TOKEN.finditer(text):
            kind = str(found.lastgroup)
            if kind == "unreadable":
                self._refuse(
                    f"cannot read the columns from {found[kind][:20]!r} on",
                    "put a name with other characters than letters, digits and _ in `backticks`",
                )
            name = found[kind]
            yield _Token(kind, name.replace("``", "`") if kind == "quoted" else name)

    def _take(self) -> _Token:
        token, self._ahead = self._ahead, next(self._tokens, _END)
        return token

    def _takes(self, mark: str) -> bool:
        """Whether this mark comes next; if so, it is consumed."""
        return self._ahead == _Token("mark", mark) and bool(self._take())

    def _fields(self, last: _Token, shown: str) -> list[pa.Field]:
        """Columns, or the fields of a struct, up to the token that ends them, which is consumed."""
        fields: list[pa.Field] = []
        while not fields or self._takes(","):
            fields.append(self._field({field.name.lower() for field in fields}))
        if self._ahead != last:
            self._path.append(fields[-1].name)
            self._refuse(
                f"expected a comma or {shown}, found {self._found()}", "write 'name type, …'"
            )
        self._take()
        return fields

    def _field(self, taken: set[str]) -> pa.Field:
        if self._ahead.kind not in ("word", "quoted"):
            self._refuse(f"expected a column's name, found {self._found()}", "write 'name type, …'")
        name = self._take().text
        self._path.append(name)
        if name.lower() in taken:
            self._refuse("the name is taken", "give each column a name of its own; case is ignored")
        self._takes(":")
        kind = self._type()
        self._skip_notes()
        self._path.pop()
        return pa.field(name, kind)

    def _type(self) -> pa.DataType:
        if self._ahead.kind != "word":
            self._refuse(f"expected a type, found {self._found()}", nearest("", _TYPES))
        if len(self._path) > _MAX_DEPTH:
            self._path = self._path[:1]
            self._refuse(
                f"nested deeper than {_MAX_DEPTH} types", "keep the record raw, or flatten it"
            )
        token = self._take()
        word = _ALIASES.get(token.keyword, token.keyword)
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "decimal":
            return self._decimal()
        if word in _FORMS:
            return self._container(word, f"write {_FORMS[word]}")
        fix = "write string" if word in _LIMITED_TEXT else nearest(word, _TYPES)
        self._refuse(f"{token.text!r} is not a type here", fix)

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._takes("("):
            precision = self._number()
            scale = self._number() if self._takes(",") else 0
            self._expect(")", "write decimal(precision, scale)")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            self._refuse(
                f"decimal({precision},{scale}) cannot be",
                f"1 to {_MAX_PRECISION} digits, of which at most all stand after the point",
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self._ahead.kind != "number" or len(self._ahead.text) > 9:
            self._refuse(
                f"expected a number, found {self._found()}", "write decimal(precision, scale)"
            )
        return int(self._take().text)

    def _container(self, word: str, fix: str) -> pa.DataType:
        self._expect("<", fix)
        if word == "struct":
            return pa.struct(self._fields(_Token("mark", ">"), "'>'"))
        if word == "array":
            return pa.list_(pa.field("element", self._part("element", ">", fix)))
        return pa.map_(self._part("key", ",", fix), self._part("value", ">", fix))

    def _part(self, name: str, end: str, fix: str) -> pa.DataType:
        """The type of a container's part, and the mark that must follow."""
        self._path.append(name)
        kind = self._type()
        self._path.pop()
        self._expect(end, fix)
        return kind

    def _skip_notes(self) -> None:
        """``NOT NULL`` and ``COMMENT 'text'``, in any order."""
        while (word := self._ahead.keyword) in ("not", "comment"):
            self._take()
            is_null, is_text = self._ahead.keyword == "null", self._ahead.kind == "text"
            if not (is_null if word == "not" else is_text):
                wanted = "NULL after NOT" if word == "not" else "a quoted text after COMMENT"
                self._refuse(
                    f"expected {wanted}, found {self._found()}",
                    "write NOT NULL or COMMENT 'text', or neither: they change nothing here",
                )
            self._take()

    def _expect(self, mark: str, fix: str) -> None:
        if not self._takes(mark):
            self._refuse(f"expected {mark!r}, found {self._found()}", fix)

    def _found(self) -> str:
        return "the end" if self._ahead == _END else repr(self._ahead.text)

    def _refuse(self, message: str, fix: str) -> NoReturn:
        column = ".".join(self._path)
        text = f"column {column!r}: {message}" if column else message
        raise ConfigError(text, fix=fix, column=column)
