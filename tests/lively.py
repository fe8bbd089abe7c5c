"""An untrained model whose heads are so large that every sentence and method gives another text.

It is exported, so it runs on both engines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import SENTENCES, enliven

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.export.model import graph_files
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, save_bundle

SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 16, "d_filter": 32, "layers": 1, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)


def save_lively_model(folder: Path, languages: tuple[str, str] = ("de", "en"), seed: int = 6) -> Path:
    """A folder of bundles: by default German to English, with a score and a teacher."""
    tokenizer = train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))
    common: dict[str, Any] = {"languages": languages, "rules": (TextRules(), TextRules())}
    torch.manual_seed(seed)

    def save(config: BundleConfig, latent: str | None = None) -> str:
        network = config.network(tokenizer.size)
        enliven(network)  # type: ignore[arg-type]
        files = graph_files(network, config.kind, set())
        weights = network.state_dict()
        return save_bundle(folder / config.kind, config, tokenizer, weights, latent=latent, files=files).fingerprint

    fingerprint = save(BundleConfig(**common, latent=LATENT))
    save(BundleConfig(**common, latent=LATENT, field=FieldConfig(kind="score", **SIZE)), fingerprint)
    save(BundleConfig(**common, teacher=TeacherConfig(**SIZE, encoder_layers=1)))
    return folder
