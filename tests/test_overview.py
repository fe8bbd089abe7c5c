"""docs/architecture.md names every file of the package and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_architecture_page_lists_every_file() -> None:
    listed = re.findall(r"^- `(latentmt/[^`]+\.py)`: \S", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "latentmt").rglob("*.py") if path.name != "__init__.py"}
    assert sorted(listed) == sorted(files)
