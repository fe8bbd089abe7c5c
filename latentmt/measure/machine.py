"""What numbers were measured on, for people who read them elsewhere."""

from __future__ import annotations

import platform
from typing import Any

import torch

import latentmt
from latentmt.translator import Translator


def machine(translator: Translator) -> dict[str, Any]:
    """Where a model is, in which precision, and with which software."""
    network = translator.latent or translator.teacher
    assert network is not None
    return {
        "device": device_name(translator.device),
        "dtype": str(next(network.parameters()).dtype).removeprefix("torch."),
        "versions": {"latentmt": latentmt.__version__, "torch": str(torch.__version__)},
    }


def device_name(device: torch.device) -> str:
    """What a device is called, by those who sell it if it is a GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()})"
