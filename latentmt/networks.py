"""Networks ↔ bundles: builds a network from its configuration, writes its weights, and reads them back.

Shards are small enough for any file host. A tensor larger than a shard is split along its first axis. What the files of
a bundle are is in `bundle`. Nothing here trains or runs a network.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from latentmt.bundle import Bundle, BundleFormat, TextConfig, open_bundle
from latentmt.config import load, to_dict, to_yaml
from latentmt.data.corpus import FileFacts
from latentmt.data.tokenizer import Tokenizer
from latentmt.errors import UserError
from latentmt.fields.registry import AnyFieldConfig, field_network
from latentmt.files import make_folder, remove, sha256, sync, write_atomically
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.presets import resolved
from latentmt.models.teacher import Teacher, TeacherConfig

SHARD_BYTES = 15_000_000


@dataclass(frozen=True, kw_only=True)
class BundleConfig(TextConfig):
    """What a network is and what text it is for: config.yaml."""

    teacher: TeacherConfig | None = None
    latent: LatentConfig | None = None
    """The latent model itself, or the one a field belongs to."""
    field: AnyFieldConfig | None = None

    @property
    def kind(self) -> str:
        if self.teacher:
            return "teacher"
        return self.field.kind if self.field else "latent"

    def network(self, vocabulary: int) -> nn.Module:
        """The network, with fresh weights."""
        if self.teacher:
            return Teacher(self.teacher, vocabulary)
        if not self.latent:
            raise UserError("a bundle's configuration names neither a teacher nor a latent model")
        if self.field:
            return field_network(self.field, self.latent)
        return LatentModel(self.latent, vocabulary)


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle with its network."""

    config: BundleConfig
    about: BundleFormat
    tokenizer: Tokenizer
    network: nn.Module
    """In evaluation mode, on the device it was asked for."""


def load_bundle(folder: Path, device: torch.device | str = "cpu", kind: str | None = None) -> LoadedBundle:
    """Check a bundle, of a kind if one is asked for, and build its network."""
    return load_network(open_bundle(folder, kind), device)


def load_network(bundle: Bundle, device: torch.device | str = "cpu") -> LoadedBundle:
    """The network of a bundle whose files were checked."""
    folder, tokenizer = bundle.folder, bundle.tokenizer
    config = load(folder / "config.yaml", BundleConfig)
    with torch.random.fork_rng(devices=[]):  # loading a model leaves the caller's random numbers alone
        network = config.network(tokenizer.size)
    weights = {name: tensor.float() for name, tensor in _read_shards(folder)}
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(
            f"{folder}: the weights do not fit config.yaml ({str(error).splitlines()[-1].strip()})"
        ) from None
    return LoadedBundle(config, bundle.about, tokenizer, network.to(device).eval().requires_grad_(False))


def save_bundle(
    folder: Path,
    config: BundleConfig,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
    *,
    latent: str | None = None,
    facts: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> BundleFormat:
    """Write a bundle beside `folder` and put it there when it is whole. `dtype` stores floats more coarsely."""
    config = _written_out(config)
    beside = folder.with_name(f".{folder.name}.writing")
    remove(beside)  # what a killed writer left
    make_folder(beside)
    try:
        _write_shards(beside, {name: _stored(tensor, dtype) for name, tensor in weights.items()})
        write_atomically(beside / "config.yaml", to_yaml(config))
        write_atomically(beside / "tokenizer.model", tokenizer.model)
        parameters = _part_sizes(config, tokenizer)
        write_atomically(beside / "MODEL_CARD.md", _card(config, parameters, facts or {}))
        files = {p.name: FileFacts(bytes=p.stat().st_size, sha256=sha256(p)) for p in sorted(beside.iterdir())}
        identity = {name: facts_.sha256 for name, facts_ in files.items() if name != "MODEL_CARD.md"}
        about = BundleFormat(
            kind=config.kind,
            fingerprint=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
            latent=latent,
            parameters=parameters,
            facts=dict(facts or {}),
            settings=dict(settings or {}),
            files=files,
        )
        write_atomically(beside / "format.json", json.dumps(to_dict(about), indent=2) + "\n")
        remove(folder)  # a folder cannot be replaced in one step; the training state survives the gap
        os.rename(beside, folder)
        sync(folder.parent)
    finally:
        remove(beside)
    return about


def parameter_counts(network: nn.Module) -> dict[str, int]:
    """How many parameters each part of a network has."""
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in network.named_children()}
    return {name: count for name, count in counts.items() if count}


def _written_out(config: BundleConfig) -> BundleConfig:
    return replace(
        config,
        teacher=resolved(config.teacher) if config.teacher else None,
        latent=resolved(config.latent) if config.latent else None,
        field=resolved(config.field) if config.field else None,
    )


def _stored(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.detach().cpu()
    return (tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor).contiguous()


def _part_sizes(config: BundleConfig, tokenizer: Tokenizer) -> dict[str, int]:
    with torch.device("meta"):
        return parameter_counts(config.network(tokenizer.size))


def _pieces(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors, those larger than a shard cut into `name[0]`, `name[1]`, …"""
    for name, tensor in sorted(weights.items()):
        if tensor.nbytes <= SHARD_BYTES:
            yield name, tensor
            continue
        rows = max(1, SHARD_BYTES * len(tensor) // tensor.nbytes)
        for index, part in enumerate(tensor.split(rows)):
            yield f"{name}[{index}]", part.contiguous()


def _write_shards(folder: Path, weights: Mapping[str, Tensor]) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in _pieces(weights):
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor
    names = [f"model-{index:05}-of-{len(shards):05}.safetensors" for index in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        write_atomically(folder / name, save(shard, {"format": "pt"}))
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for shard in shards for tensor in shard.values())},
        "weight_map": {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
    }
    write_atomically(folder / "model.safetensors.index.json", json.dumps(index, indent=2) + "\n")


def _read_shards(folder: Path) -> Iterator[tuple[str, Tensor]]:
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    parts: dict[str, dict[int, Tensor]] = {}
    for shard in sorted(set(index["weight_map"].values())):
        try:
            tensors = load_file(folder / shard)
        except SafetensorError as error:
            raise UserError(f"{folder / shard}: not a safetensors file ({error})") from None
        for name, tensor in tensors.items():
            whole, _, part = name.rstrip("]").partition("[")
            parts.setdefault(whole, {})[int(part or 0)] = tensor
    for name, pieces in parts.items():
        yield name, torch.cat([pieces[index] for index in sorted(pieces)]) if len(pieces) > 1 else pieces[0]


def _card(config: BundleConfig, parameters: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    lines = [
        f"# {config.kind}, {' → '.join(config.languages)}",
        "",
        "Written by latentmt.",
        "",
        "| part | parameters |",
    ]
    lines += ["|---|---|", *(f"| {part} | {count:,} |" for part, count in parameters.items())]
    lines += [f"| all | {sum(parameters.values()):,} |", "", "| fact | value |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in facts.items())]) + "\n"
