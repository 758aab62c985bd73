"""``catalog:``: where the Iceberg tables are. Any property a pyiceberg catalog takes."""

from pathlib import Path

from pydantic import ConfigDict, Field

from tidemill.config.section import Section

_SQLITE = "sqlite:///"


class CatalogConfig(Section):
    """The Iceberg catalog. Any other pyiceberg property than these is passed on."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field("tidemill", description="The catalog's name inside pyiceberg.")
    uri: str = Field(
        "sqlite:///.tidemill/catalog.db",
        description="Where the catalog is; a SQLite path is relative to the YAML.",
    )
    warehouse: str = Field(
        ".tidemill/warehouse", description="Where tables are written; relative to the YAML."
    )

    def properties(self, base: Path) -> dict[str, str]:
        """What pyiceberg's ``load_catalog`` takes, relative paths made absolute from ``base``."""
        extra = {key: str(value) for key, value in (self.model_extra or {}).items()}
        uri, warehouse = self.uri, self.warehouse
        if uri.startswith(_SQLITE):
            path = str(base / uri.removeprefix(_SQLITE))
            uri = _SQLITE + path.replace("%", "%25").replace("?", "%3F")
        if "://" not in warehouse:
            path = str(base / warehouse)  # pyiceberg unquotes no URI, and cuts one at # and ?
            warehouse = path if "#" in path or "?" in path else f"file://{path}"
        return {"uri": uri, "warehouse": warehouse, **extra}

    def local_folders(self, base: Path) -> list[Path]:
        """The folders on this machine that must exist before the catalog can be opened."""
        folders = []
        if self.uri.startswith(_SQLITE):
            folders.append((base / self.uri.removeprefix(_SQLITE)).parent)
        if "://" not in self.warehouse:
            folders.append(base / self.warehouse)
        return folders
