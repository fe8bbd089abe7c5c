"""A model that gives every sentence another text (`lively`)."""

from __future__ import annotations

import pytest
from lively import save_lively_model

from latentmt.translator import Translator


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(save_lively_model(tmp_path_factory.mktemp("model")))
