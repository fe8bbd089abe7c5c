"""A model as it ships: its bundles stored in half precision, side by side in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from latentmt.bundle import kinds_in
from latentmt.errors import UserError
from latentmt.files import write_atomically
from latentmt.networks import load_bundle, save_bundle
from latentmt.translator import OPTIONS_FILES


def release(model: Path, folder: Path, kinds: Sequence[str] | None = None) -> dict[str, int]:
    """Store a model's bundles, or those of some kinds, as fp16 in another folder; how many bytes each then has.

    Rounded weights are another model, with another fingerprint; fields are told so. The model's default options go
    along where all of it does.
    """
    there = kinds_in(model)
    if not there:
        raise UserError(f"{model}: no model (no folder in it holds a bundle)")
    if missing := [kind for kind in kinds or () if kind not in there]:
        raise UserError(f"{model}: holds no {missing[0]} model")
    wanted = [kind for kind in there if not kinds or kind in kinds]
    if "latent" not in wanted and set(wanted) - {"teacher"}:
        raise UserError("a field is of no use without its latent model: release that, too")
    sizes: dict[str, int] = {}
    latent: str | None = None
    for kind in wanted:
        bundle = load_bundle(model / kind, kind=kind)
        about = save_bundle(
            folder / kind,
            bundle.config,
            bundle.tokenizer,
            bundle.network.state_dict(),
            latent=latent if kind not in ("latent", "teacher") else None,
            facts=bundle.about.facts,
            dtype=torch.float16,
        )
        latent = about.fingerprint if kind == "latent" else latent
        sizes[kind] = sum(file.bytes for file in about.files.values())
    own = next((path for name in OPTIONS_FILES if (path := model / name).exists()), None)
    if own and wanted == there:
        write_atomically(folder / OPTIONS_FILES[0], own.read_text(encoding="utf-8"))
    return sizes
