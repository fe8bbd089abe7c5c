"""The machine, precision and software that numbers were measured with."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import torch

import latentmt
from latentmt.infer.translator import Translator


@dataclass(frozen=True)
class Machine:
    """Device, precision and software versions."""

    device: str
    dtype: str
    versions: dict[str, str]

    @staticmethod
    def from_translator(translator: Translator) -> Machine:
        """The machine that a translator runs on."""
        networks = translator.engine.networks
        network = networks.latent or networks.teacher
        assert network is not None
        return Machine(
            device_name(translator.device),
            str(next(network.parameters()).dtype).removeprefix("torch."),
            {"latentmt": latentmt.__version__, "torch": str(torch.__version__)},
        )


def device_name(device: torch.device) -> str:
    """The product name of a GPU, or `cpu` with its architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()})"
