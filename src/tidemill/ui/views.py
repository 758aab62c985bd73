"""Templates: pages and the parts of them that change, always escaped and without secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tidemill.ui import charts, shown

FOLDER = Path(__file__).parent
MACROS = ("copied", "told", "badge", "table", "run_link", "run_head", "counts")
"""Global, because a part of a page that is made alone does not run what the page imports."""
_LIVE = "live_"
"""What the name of a block begins with that is sent again when it changes."""


class Views:
    """Makes HTML. Every value is redacted before it is escaped, and the page once more after."""

    def __init__(self, redact: Callable[[str], str], **everywhere: Any) -> None:
        self._redact = redact
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=self._value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(shown.FILTERS)
        self._templates.filters["cell"] = self._cell
        self._templates.globals.update(everywhere)
        self._templates.globals["chart"] = charts
        macros = self._templates.get_template("parts.html").module
        self._templates.globals.update({name: getattr(macros, name) for name in MACROS})

    def _value(self, value: Any) -> Any:
        if value is None:
            return ""
        if isinstance(value, Markup):
            return value
        return self._redact(str(value))

    def _cell(self, value: Any) -> str:
        """A value of a row: redacted first, because half of a secret would not be found."""
        return shown.cut(self._redact(shown.plain(value)))

    def page(self, template: str, facts: Mapping[str, Any]) -> str:
        """A whole page, or a part that has a template of its own."""
        return self._redact(self._templates.get_template(template).render(facts))

    def regions(self, template: str, facts: Mapping[str, Any]) -> dict[str, str]:
        """The parts of a page that change by themselves, by their ids."""
        found = self._templates.get_template(template)
        context = found.new_context(dict(facts))
        return {
            name: self._redact("".join(block(context)))
            for name, block in found.blocks.items()
            if name.startswith(_LIVE)
        }
