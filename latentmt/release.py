"""Releases a model: its bundles in half precision, in one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from latentmt.bundle import check_replaceable, kinds_in
from latentmt.errors import UserError
from latentmt.files import write_atomically
from latentmt.networks import load_bundle, save_bundle
from latentmt.translator import OPTIONS_FILES


def release(model: Path, folder: Path, kinds: Sequence[str] | None = None) -> dict[str, int]:
    """Save a model's bundles, or those of these kinds, as fp16 in another folder, and return their sizes in bytes.

    The rounded latent model has another fingerprint, which is recorded in its fields. The model's default options are
    copied if all bundles are.
    """
    available = kinds_in(model)
    if not available:
        raise UserError(f"{model}: no model (no folder in it holds a bundle)")
    if missing := [kind for kind in kinds or () if kind not in available]:
        raise UserError(f"{model}: holds no {missing[0]} model")
    chosen = [kind for kind in available if not kinds or kind in kinds]
    if "latent" not in chosen and set(chosen) - {"teacher"}:
        raise UserError("a field is of no use without its latent model: release that, too")
    options = next((path for name in OPTIONS_FILES if (path := model / name).exists()), None)
    if options and chosen != available:
        options = None
    _check_target(model, folder, chosen, options)
    sizes: dict[str, int] = {}
    latent: str | None = None
    for kind in chosen:
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
    if options:
        write_atomically(folder / OPTIONS_FILES[0], options.read_bytes())
    return sizes


def _check_target(model: Path, folder: Path, kinds: Sequence[str], options: Path | None) -> None:
    """Refuse, before anything is written, to overwrite the model itself, or what is not a release of a model."""
    source, target = model.resolve(), folder.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise UserError(f"{folder}: is not apart from {model}; release it to another folder")
    for kind in kinds:
        check_replaceable(folder / kind)
    present = folder / OPTIONS_FILES[0]
    if options and os.path.lexists(present) and present.read_bytes() != options.read_bytes():
        raise UserError(f"{present}: has other options than {options}; move it away")
