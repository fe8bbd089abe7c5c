"""Which engine runs a model: the one place where it is chosen. An engine is imported only if it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentmt.bundle import Bundle
from latentmt.data.tokenizer import Tokenizer
from latentmt.engines.backend import Backend


def load_backend(
    bundles: Mapping[str, Bundle], device: str, threads: int | None, dtype: Any, graphs: bool | None
) -> Backend:
    """An engine with these bundles loaded (see `Translator.load`)."""
    from latentmt.engines.torch_engine import load_torch_engine

    return load_torch_engine(bundles, device, threads, dtype, graphs)


def torch_backend(
    tokenizer: Tokenizer, latent: Any, fields: Mapping[str, Any], teacher: Any, graphs: bool | None
) -> Backend:
    """A torch engine with networks that are in memory."""
    from latentmt.engines.torch_engine import engine_of

    return engine_of(tokenizer, latent, fields, teacher, graphs)
