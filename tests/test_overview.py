"""docs/overview.md names every file of the package and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_overview_names_every_file() -> None:
    listed = re.findall(r"^- `(latentmt/[^`]+\.py)`: \S", (ROOT / "docs" / "overview.md").read_text(), re.MULTILINE)
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "latentmt").rglob("*.py") if path.name != "__init__.py"}
    assert sorted(listed) == sorted(there)
