"""A model as it ships: its bundles stored in half precision, side by side in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from latentmt.bundle import KINDS, Kind, kinds_in, load_bundle, save_bundle
from latentmt.errors import UserError
from latentmt.files import write_atomically
from latentmt.infer.translator import OPTIONS_FILES


def release(model: Path, folder: Path, kinds: Sequence[Kind] | None = None) -> dict[Kind, int]:
    """Store a model's bundles, or those of some kinds, as fp16 in another folder; how many bytes each then has.

    Rounded weights are another model, with another fingerprint; fields are told so. The model's own way to translate
    goes along where all of it does.
    """
    there = kinds_in(model)
    wanted = [kind for kind in KINDS if kind in (kinds or there)]
    if missing := [kind for kind in wanted if kind not in there]:
        raise UserError(f"{model}: holds no {missing[0]} model")
    if not wanted:
        raise UserError(f"{model}: no model (none of {', '.join(KINDS)} holds a bundle)")
    if {"score", "energy"} & set(wanted) and "latent" not in wanted:
        raise UserError("a field is of no use without its latent model: release that, too")
    sizes: dict[Kind, int] = {}
    latent: str | None = None
    for kind in wanted:
        bundle = load_bundle(model / kind, kind=kind)
        about = save_bundle(
            folder / kind,
            bundle.config,
            bundle.tokenizer,
            bundle.network.state_dict(),
            latent=latent if kind in ("score", "energy") else None,
            facts=bundle.about.facts,
            dtype=torch.float16,
        )
        latent = about.fingerprint if kind == "latent" else latent
        sizes[kind] = sum(file.bytes for file in about.files.values())
    own = next((path for name in OPTIONS_FILES if (path := model / name).exists()), None)
    if own and wanted == kinds_in(model):
        write_atomically(folder / OPTIONS_FILES[0], own.read_text(encoding="utf-8"))
    return sizes
