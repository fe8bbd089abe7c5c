"""The cache: a measurement is made once, again when its signature changes, and survives an interruption of others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from latentmt.measure.cache import Cache
from latentmt.measure.machine import Machine
from latentmt.measure.report import Conditions, Measurement, Signature

CONDITIONS = Conditions({}, "hash", 1, Machine("cpu", "float32", {}))
SIGNATURE = Signature(CONDITIONS, {}, {})


@dataclass(frozen=True)
class Result(Measurement):
    texts: list[str]


def test_measured_once_until_the_signature_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured: list[str] = []

    def get(name: str, model: str, steps: list[int]) -> Result:
        signature = Signature(CONDITIONS, {"latent": model}, {"steps": steps})

        def measure() -> Result:
            measured.append(name)
            return Result(signature, ["grün", "x"])

        return Cache(tmp_path).get(name, Result, signature, measure)

    first = get("Score-1 5×5", "a", [1, 2])
    assert first == Result(Signature(CONDITIONS, {"latent": "a"}, {"steps": [1, 2]}), ["grün", "x"])
    assert get("Score-1 5×5", "a", [1, 2]) == first
    assert len(measured) == 1
    assert "Score-1 5×5: measured before" in capsys.readouterr().err
    get("Score-1 5×5", "b", [1, 2])
    get("Score-1 5×5", "b", [1, 3])
    get("Score-2 5×5", "b", [1, 3])
    assert len(measured) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["score-1_5_5.json", "score-2_5_5.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"signature": {}}', '{"signature": {}, "texts": 1}'])
def test_an_unreadable_file_is_measured_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.json").write_text(content)
    assert Cache(tmp_path).get("one", Result, SIGNATURE, lambda: Result(SIGNATURE, ["new"])).texts == ["new"]


def test_an_interruption_loses_one_measurement(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.get("one", Result, SIGNATURE, lambda: Result(SIGNATURE, ["1"]))

    def interrupted() -> Result:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get("two", Result, SIGNATURE, interrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]
    assert cache.get("one", Result, SIGNATURE, interrupted).texts == ["1"]
