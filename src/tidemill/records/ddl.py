"""Columns as Spark DDL writes them (``a long, b struct<c: string>``), read without Spark.

The types are Arrow's as Spark has them. Every column may be null: ``NOT NULL`` and ``COMMENT`` are
accepted and change nothing, because a record that cannot be decoded has null columns.
"""

from __future__ import annotations

import re
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
_TYPES = {*TYPE_NAMES, "decimal", "array", "map", "struct"}
_LIMITED_TEXT = {"char", "character", "varchar"}
_MAX_PRECISION = 38
_MAX_DEPTH = 50
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"""\s*(?:
      `(?P<quoted>(?:[^`]|``)+)`
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9]+)
    | (?P<mark>[<>(),:])
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse_columns(text: str, where: str = "") -> pa.Schema:
    """The columns of a DDL text; errors say ``where`` the text was written."""
    return pa.schema(_Ddl(text, where).columns())


def parse_type(text: str) -> pa.DataType:
    """The type that a DDL text names; nothing may follow it."""
    return _Ddl(text, "").only_type()


def write_columns(columns: pa.Schema) -> str:
    """The same columns as DDL, for types that :func:`parse_columns` knows."""
    return ", ".join(f"{_name(field.name)} {type_text(field.type)}" for field in columns)


def type_text(kind: pa.DataType) -> str:
    """A type as DDL writes it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        parts = (f"{_name(field.name)}: {type_text(field.type)}" for field in kind)
        return f"struct<{', '.join(parts)}>"
    return _NAMES[kind]


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


class _Token(NamedTuple):
    kind: str  # quoted, text, word, number, mark, end
    text: str

    @property
    def keyword(self) -> str:
        """The word in lower case; empty for other tokens."""
        return self.text.lower() if self.kind == "word" else ""


class _Ddl:
    """Parses one text from left to right."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._path: list[str] = []
        self._tokens = self._split(text)
        self._next = 0

    def columns(self) -> list[pa.Field]:
        """All columns; nothing may follow them."""
        if self._ahead.kind == "end":
            self._refuse("no columns are written", "write for example 'id long, at timestamp'")
        return self._fields("end", "")

    def only_type(self) -> pa.DataType:
        """One type; nothing may follow it."""
        kind = self._type()
        if self._ahead.kind != "end":
            self._refuse(f"{self._found()} after the type", "write one type, such as array<string>")
        return kind

    def _split(self, text: str) -> list[_Token]:
        tokens, at, end = [], 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                rest = text[at:].lstrip()
                self._refuse(
                    f"cannot read the columns from {rest[:20]!r} on",
                    "put a name with other characters than letters, digits and _ in `backticks`",
                )
            kind = str(found.lastgroup)
            name = found[kind]
            tokens.append(_Token(kind, name.replace("``", "`") if kind == "quoted" else name))
            at = found.end()
        return [*tokens, _Token("end", "")]

    @property
    def _ahead(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._ahead
        self._next += token.kind != "end"
        return token

    def _takes(self, mark: str) -> bool:
        """Whether this mark comes next; if so, it is consumed."""
        if self._ahead != _Token("mark", mark):
            return False
        self._next += 1
        return True

    def _fields(self, last_kind: str, last: str) -> list[pa.Field]:
        """Columns, or the fields of a struct, up to the token that ends them, which is consumed."""
        fields: list[pa.Field] = []
        while True:
            fields.append(self._field({field.name.lower() for field in fields}))
            if self._takes(","):
                continue
            if self._ahead == _Token(last_kind, last):
                self._take()
                return fields
            self._path.append(fields[-1].name)
            wanted = "a comma or the end" if last_kind == "end" else f"a comma or {last!r}"
            self._refuse(f"expected {wanted}, found {self._found()}", "write 'name type, …'")

    def _field(self, taken: set[str]) -> pa.Field:
        if self._ahead.kind not in ("word", "quoted"):
            self._refuse(f"expected a column's name, found {self._found()}", "write 'name type, …'")
        token = self._take()
        self._path.append(token.text)
        if token.text.lower() in taken:
            self._refuse("the name is taken", "give each column a name of its own; case is ignored")
        self._takes(":")
        kind = self._type()
        self._skip_notes()
        self._path.pop()
        return pa.field(token.text, kind)

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
        if word in ("array", "map", "struct"):
            return self._container(word)
        if word in _LIMITED_TEXT:
            self._refuse(f"{token.text!r} is not a type here", "write string")
        self._refuse(f"{token.text!r} is not a type here", nearest(word, _TYPES))

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

    def _container(self, word: str) -> pa.DataType:
        forms = {"array": "array<type>", "map": "map<type, type>", "struct": "struct<name: type>"}
        fix = f"write {forms[word]}"
        self._expect("<", fix)
        if word == "struct":
            return pa.struct(self._fields("mark", ">"))
        if word == "array":
            element = self._part("element")
            self._expect(">", fix)
            return pa.list_(pa.field("element", element))
        key = self._part("key")
        self._expect(",", fix)
        value = self._part("value")
        self._expect(">", fix)
        return pa.map_(key, value)

    def _part(self, name: str) -> pa.DataType:
        self._path.append(name)
        kind = self._type()
        self._path.pop()
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
        return "the end" if self._ahead.kind == "end" else repr(self._ahead.text)

    def _refuse(self, message: str, fix: str) -> NoReturn:
        column = ".".join(self._path)
        text = f"column {column!r}: {message}" if column else message
        raise ConfigError(text, where=self._where, fix=fix, column=column)
