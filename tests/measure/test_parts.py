"""Parts are measured once, again when something has changed, and survive whatever interrupts the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentmt.measure.parts import Parts


def test_measured_once_unless_something_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured: list[str] = []

    def measure() -> dict[str, object]:
        measured.append("x")
        return {"texts": ("grün", "x")}

    part = Parts(tmp_path, {"model": "a"}).get("Score-1 5×5", {"steps": (1, 2)}, measure)
    assert part == {"signature": {"model": "a", "steps": [1, 2]}, "result": {"texts": ["grün", "x"]}}
    assert Parts(tmp_path, {"model": "a"}).get("Score-1 5×5", {"steps": (1, 2)}, measure) == part
    assert len(measured) == 1
    assert "Score-1 5×5: measured before" in capsys.readouterr().err
    Parts(tmp_path, {"model": "b"}).get("Score-1 5×5", {"steps": (1, 2)}, measure)
    Parts(tmp_path, {"model": "b"}).get("Score-1 5×5", {"steps": (1, 3)}, measure)
    Parts(tmp_path, {"model": "b"}).get("Score-2 5×5", {"steps": (1, 3)}, measure)
    assert len(measured) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["score-1_5_5.json", "score-2_5_5.json"]


@pytest.mark.parametrize("left", ["", "{", "[]", "{}", '{"signature": {}}'])
def test_what_cannot_be_read_is_measured_again(tmp_path: Path, left: str) -> None:
    (tmp_path / "one.json").write_text(left)
    assert Parts(tmp_path, {}).get("one", {}, lambda: 5)["result"] == 5


def test_an_interruption_loses_one_part(tmp_path: Path) -> None:
    parts = Parts(tmp_path, {})
    parts.get("one", {}, lambda: 1)

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.get("two", {}, interrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]
    assert parts.get("one", {}, interrupted)["result"] == 1
