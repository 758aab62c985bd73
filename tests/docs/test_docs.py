"""Docs that cannot rot: references are current, README's code is the starter's, links lead home."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tidemill.config.project import ProjectConfig

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_generated_references_are_current() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "references.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sources_that_a_page_names_are_there(page: Path) -> None:
    for named in re.findall(r"`((?:\w+/)+\w+\.py)", page.read_text("utf-8")):
        places = (ROOT, ROOT / "src" / "tidemill")
        assert any((place / named).exists() for place in places), f"{page.name} names {named}"


def test_the_readme_pipeline_is_the_one_init_writes() -> None:
    """Same YAML, same function: what README shows is what a newcomer gets, and what is tested."""
    readme = (ROOT / "README.md").read_text("utf-8")
    starter = ROOT / "src" / "tidemill" / "starter"
    shown = yaml.safe_load(blocks(readme, "yaml")[0])
    written = yaml.safe_load((starter / "tidemill.yaml").read_text("utf-8"))
    assert (
        ProjectConfig.model_validate(shown).streams == ProjectConfig.model_validate(written).streams
    )
    code = blocks(readme, "python")[0]
    body = [line.strip() for line in code.splitlines() if line.startswith("    ")]
    source = (starter / "pipelines.py").read_text("utf-8")
    for line in body:
        assert line in source, line


def test_no_page_names_a_local_path() -> None:
    for page in PAGES:
        assert str(ROOT) not in page.read_text("utf-8"), page.name
