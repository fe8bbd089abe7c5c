"""Chooses the engine that runs a model. An engine is imported only if it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentmt.bundle import Bundle
from latentmt.data.tokenizer import Tokenizer
from latentmt.engines.backend import Backend


def load_backend(
    bundles: Mapping[str, Bundle], device: str, threads: int | None, dtype: Any, graphs: bool | None
) -> Backend:
    """Load an engine from bundles (see `Translator.load`)."""
    from latentmt.engines.torch_engine import load_torch_engine

    return load_torch_engine(bundles, device, threads, dtype, graphs)


def torch_backend(
    tokenizer: Tokenizer, latent: Any, fields: Mapping[str, Any], teacher: Any, graphs: bool | None
) -> Backend:
    """A torch engine with networks in memory."""
    from latentmt.engines.torch_engine import make_torch_engine

    return make_torch_engine(tokenizer, latent, fields, teacher, graphs)
