"""The verdict on one JSON record, in plain Python: written apart from the decoder, to check it."""

import base64
import binascii
import json
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC) - EPOCH) // timedelta(microseconds=1)
NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


class Dead(Exception):
    pass


class Number:
    """A number as it was written."""

    def __init__(self, text):
        self.text = text
        self.is_whole = text.lstrip("-").isdigit()

    @property
    def double(self):
        return float(self.text)  # rounds to the nearest, also from a thousand digits

    @property
    def exact(self):
        """Mantissa and exponent: the number is one times ten to the other."""
        mantissa, _, exponent = self.text.lower().partition("e")
        whole, _, fraction = mantissa.partition(".")
        return int(whole + fraction), int(exponent or 0) - len(fraction)

    @property
    def canonical(self):
        """As exact as Decimal can be, whose exponents end at two million million million."""
        if self.is_whole:
            return str(int(self.text))
        try:
            return str(Decimal(self.text))
        except InvalidOperation:
            sign = "-" if self.text.startswith("-") else ""
            return sign + ("1E-1999999999999999997" if self.exact[0] else "0")


def judge(value, columns, zone="UTC"):
    """``(row, None, extra)`` or ``(None, reason, None)``."""
    try:
        return judged(value, columns, zone)
    except Dead as verdict:
        reason = str(verdict)
        return None, reason if len(reason) <= 200 else reason[:199] + "…", None


def judged(value, columns, zone):
    if value is None:
        raise Dead("no value")
    if depth(value) > 100:
        raise Dead("nested deeper than 100 levels")
    record = parse(value)
    if not isinstance(record, dict):
        raise Dead(f"expected an object, found {kind_of(record)}")
    row, extra = {}, {k: v for k, v in record.items() if k not in columns.names}
    for field in columns:
        found = record.get(field.name)
        row[field.name] = convert(found, field.type, field.name, zone)
        if has_unknown(found, field.type):
            extra[field.name] = found
    for name, found in extra.items():
        check(found, name)
    return row, None, write(extra) if extra else None


def depth(value):
    level = deepest = 0
    is_text = is_escaped = False
    for byte in value:
        char = chr(byte)
        if is_text:
            is_text = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            is_text = True
        elif char in "[{":
            level += 1
            deepest = max(level, deepest)
        elif char in "]}":
            level -= 1
    return deepest


def parse(value):
    def refuse(_):
        raise ValueError

    def whole(text):
        if len(text.lstrip("-")) > 4300:
            raise Dead("number of too many digits")
        return Number(text)

    def last_wins(pairs):
        for name, found in pairs:
            unpaired(name)
            unpaired(found)
        return dict(pairs)

    try:
        text = value.decode("utf-8")
        found = json.loads(
            text,
            parse_float=Number,
            parse_int=whole,
            parse_constant=refuse,
            object_pairs_hook=last_wins,
        )
        unpaired(found)
    except ValueError:
        raise Dead("not JSON") from None
    return found


def unpaired(value):
    """A half of a surrogate pair is no character."""
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, list):
        for part in value:
            unpaired(part)


def kind_of(value):
    if isinstance(value, Number):
        return "integer" if value.is_whole else "fraction"
    names = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def convert(value, kind, path, zone):
    if value is None:
        return None
    if pa.types.is_list(kind):
        expect(isinstance(value, list), value, "array", path)
        return [convert(v, kind.value_type, f"{path}[{i}]", zone) for i, v in enumerate(value)]
    if pa.types.is_map(kind):
        expect(isinstance(value, dict), value, "map", path)
        return [(k, convert(v, kind.item_type, f"{path}.{k}", zone)) for k, v in value.items()]
    if pa.types.is_struct(kind):
        expect(isinstance(value, dict), value, "struct", path)
        return {
            part.name: convert(value.get(part.name), part.type, f"{path}.{part.name}", zone)
            for part in kind
        }
    if pa.types.is_decimal(kind):
        return decimal(value, kind, path)
    return leaf(value, kind, NAMES[kind], path, zone)


def expect(holds, value, name, path):
    if not holds:
        raise Dead(f"{path}: expected {name}, found {kind_of(value)}")


def leaf(value, kind, name, path, zone):
    is_text, is_number = isinstance(value, str), isinstance(value, Number)
    is_whole = is_number and value.is_whole
    if name == "boolean":
        expect(isinstance(value, bool), value, name, path)
        return value
    if name == "string":
        expect(is_text, value, name, path)
        return value
    if name in ("byte", "short", "int", "long"):
        expect(is_whole, value, name, path)
        bits = {"byte": 8, "short": 16, "int": 32, "long": 64}[name]
        if not -(2 ** (bits - 1)) <= int(value.text) <= 2 ** (bits - 1) - 1:
            raise Dead(f"{path}: number out of range for {name}")
        return int(value.text)
    if name in ("float", "double"):
        expect(is_number, value, name, path)
        return floating(value, name, path)
    if name == "binary":
        expect(is_text, value, name, path)
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Dead(f"{path}: text is not base64") from None
    if name == "date":
        expect(is_text, value, name, path)
        return iso_date(value, path)
    expect(is_text or is_whole, value, name, path)
    micros = int(value.text) * 1000 if is_whole else iso_time(value, name, path, zone)
    if not FIRST <= micros <= LAST:
        raise Dead(f"{path}: time outside the years 1 to 9999")
    moment = EPOCH + timedelta(microseconds=micros)
    return moment if name == "timestamp" else moment.replace(tzinfo=None)


def floating(value, name, path):
    found = float(int(value.text)) if value.is_whole and len(value.text) < 300 else value.double
    if math.isinf(found) or (name == "float" and abs(found) > 3.4028234663852886e38):
        raise Dead(f"{path}: number out of range for {name}")
    return struct.unpack("f", struct.pack("f", found))[0] if name == "float" else found


def decimal(value, kind, path):
    name = f"decimal({kind.precision},{kind.scale})"
    if isinstance(value, str):
        if not is_number(value):
            raise Dead(f"{path}: text is not a number")
        value = Number(value)
    expect(isinstance(value, Number), value, name, path)
    digits, exponent = value.exact
    while digits and digits % 10 == 0:
        digits, exponent = digits // 10, exponent + 1
    if digits == 0:
        return Decimal((0, (0,), -kind.scale))
    if exponent < -kind.scale or exponent + len(str(abs(digits))) > kind.precision - kind.scale:
        raise Dead(f"{path}: number does not fit {name}")
    scaled = digits * 10 ** (exponent + kind.scale)
    return Decimal((int(scaled < 0), tuple(int(d) for d in str(abs(scaled))), -kind.scale))


def is_number(text):
    mantissa, has_exponent, exponent = text.removeprefix("-").replace("E", "e").partition("e")
    whole, has_point, fraction = mantissa.partition(".")
    if exponent[:1] in ("+", "-"):
        exponent = exponent[1:]
    parts = [whole, *([fraction] if has_point else []), *([exponent] if has_exponent else [])]
    return all(part.isascii() and part.isdigit() for part in parts)


def digits_of(text, count, path, what):
    if len(text) != count or not (text.isascii() and text.isdigit()):
        raise Dead(f"{path}: text is not a {what}")
    return int(text)


def iso_date(text, path, what="date"):
    parts = text.split("-")
    if len(parts) != 3:
        raise Dead(f"{path}: text is not a {what}")
    numbers = [digits_of(t, n, path, what) for t, n in zip(parts, (4, 2, 2), strict=True)]
    try:
        return date(*numbers)
    except ValueError:
        raise Dead(f"{path}: text is not a {what}") from None


def iso_time(text, name, path, zone):
    """Microseconds since the epoch, by cutting the text at its marks."""
    wrong = Dead(f"{path}: text is not a time")
    if text[10:11] not in ("T", " ") or not text:
        raise wrong
    day, clock, offset = iso_date(text[:10], path, "time"), text[11:], None
    if clock.endswith("Z"):
        clock, offset = clock[:-1], 0
    elif "+" in clock or "-" in clock:
        at = max(clock.find("+"), clock.find("-"))
        clock, sign, ahead = clock[:at], clock[at], clock[at + 1 :]
        if len(ahead) == 5 and ahead[2] == ":":
            ahead = ahead[:2] + ahead[3:]
        hours = digits_of(ahead[:2], 2, path, "time")
        minutes = digits_of(ahead[2:], 2, path, "time") if len(ahead) != 2 else 0
        if hours > 23 or minutes > 59:
            raise wrong
        offset = (hours * 60 + minutes) * (1 if sign == "+" else -1)
    fraction = "0"
    for mark in ".,":
        if mark in clock:
            clock, fraction = clock.split(mark, 1)
            if len(clock) != 8 or not fraction.isascii() or not fraction.isdigit():
                raise wrong
            break
    parts = [digits_of(part, 2, path, "time") for part in clock.split(":")]
    if len(parts) not in (2, 3) or parts[0] > 23 or parts[1] > 59 or parts[-1] > 59:
        raise wrong
    seconds = sum(part * size for part, size in zip(parts, (3600, 60, 1), strict=False))
    micros = (day.toordinal() - date(1970, 1, 1).toordinal()) * 86_400 + seconds
    micros = micros * 1_000_000 + int((fraction + "000000")[:6])
    if offset is not None:
        if name == "timestamp_ntz":
            raise Dead(f"{path}: a time with a zone, expected timestamp_ntz")
        return micros - offset * 60_000_000
    if name == "timestamp_ntz" or zone == "UTC":
        return micros
    local = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(microseconds=micros)
    return micros - local.utcoffset() // timedelta(microseconds=1)


def has_unknown(value, kind):
    if isinstance(value, list):
        return any(has_unknown(part, kind.value_type) for part in value)
    if isinstance(value, dict) and pa.types.is_map(kind):
        return any(has_unknown(part, kind.item_type) for part in value.values())
    if isinstance(value, dict):
        parts = {part.name: part.type for part in kind}
        return any(k not in parts or has_unknown(v, parts[k]) for k, v in value.items())
    return False


def check(value, path):
    if isinstance(value, dict):
        for name, part in value.items():
            check(part, f"{path}.{name}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            check(part, f"{path}[{index}]")
    elif isinstance(value, Number) and math.isinf(value.double):
        raise Dead(f"{path}: number out of range for double")


def write(value):
    if isinstance(value, dict):
        parts = (f"{write(k)}:{write(value[k])}" for k in sorted(value))
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(part) for part in value) + "]"
    if isinstance(value, Number):
        return value.canonical
    return json.dumps(value, ensure_ascii=False)
