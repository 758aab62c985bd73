"""Short texts of large values, for a Python prompt and for notebooks."""

from collections.abc import Mapping
from html import escape


def one_line(kind: str, title: str, facts: Mapping[str, str]) -> str:
    """``<RunPlan plays_per_show: slices 1; rows 116,908>``."""
    return f"<{kind} {title}: {'; '.join(f'{name} {told}' for name, told in facts.items())}>"


def card(title: str, facts: Mapping[str, str]) -> str:
    """A title and a table of facts, as HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(told)}</td></tr>"
        for name, told in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"
