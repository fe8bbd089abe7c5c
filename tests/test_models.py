"""Models of the repository that are not in the wheel."""

from pathlib import Path

import pytest

from latentmt.options import DecodingOptions
from latentmt.translator import Translator

MODELS = sorted(path.parent for path in (Path(__file__).parent.parent / "models").glob("*/options.yaml"))


@pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)
def test_a_model_has_a_card_and_its_name_there(folder: Path) -> None:
    assert f"--model models/{folder.name}" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8")


TEACHERS = {
    "deen-teacher": {
        "Morgen fahren wir nach Hamburg.": "Hamburg",
        "Was öffnete mir also die Augen?": "eyes",
        "Siehe https://example.org/a?b=1.": "https://example.org/a?b=1",
    },
    "ende-teacher": {
        "We are going to Hamburg tomorrow.": "Hamburg",
        "We must protect the environment.": "Umwelt",
        "It costs 1,500.50 euros.": "1.500,50",
        "See https://example.org/a?b=1.": "https://example.org/a?b=1",
    },
}
"""What a word of some translations is. Which others 8 bits change depends on the processor."""


def test_teachers_are_all_there_is() -> None:
    assert [path.name for path in MODELS] == list(TEACHERS)


@pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)
def test_a_teacher_translates_by_beam_search_without_torch(folder: Path) -> None:
    teacher = Translator.load(folder, engine="onnx")
    assert teacher.methods == ["teacher"]
    assert teacher.options() == DecodingOptions("teacher", beam=4)
    expected = TEACHERS[folder.name]
    for found, word in zip(teacher.translate(list(expected)), expected.values(), strict=True):
        assert word in found
