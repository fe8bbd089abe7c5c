"""Models of the repository that are not in the wheel."""

from pathlib import Path

import pytest

from latentmt.options import DecodingOptions
from latentmt.translator import Translator

MODELS = sorted(path.parent for path in (Path(__file__).parent.parent / "models").glob("*/options.yaml"))


@pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)
def test_a_model_has_a_card_and_its_name_there(folder: Path) -> None:
    assert f"--model models/{folder.name}" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_the_teacher_translates_by_beam_search_without_torch() -> None:
    assert [path.name for path in MODELS] == ["deen-teacher"]
    teacher = Translator.load(MODELS[0], engine="onnx")
    assert teacher.methods == ["teacher"]
    assert teacher.options() == DecodingOptions("teacher", beam=4)
    texts = ["Morgen fahren wir nach Hamburg.", "Was öffnete mir also die Augen?", "Siehe https://example.org/a?b=1."]
    found = teacher.translate(texts)
    assert "Hamburg" in found[0]  # which words 8 bits change depends on the processor
    assert "eyes" in found[1]
    assert "https://example.org/a?b=1" in found[2]
