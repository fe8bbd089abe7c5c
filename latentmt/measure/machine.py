"""The machine, precision and software that numbers were measured with."""

from __future__ import annotations

from dataclasses import dataclass

from latentmt.translator import Translator


@dataclass(frozen=True)
class Machine:
    """Device, precision and software versions."""

    device: str
    dtype: str
    versions: dict[str, str]

    @staticmethod
    def from_translator(translator: Translator) -> Machine:
        """The machine that a translator runs on."""
        info = translator.backend.info
        return Machine(info["device"], info["dtype"], info["versions"])
