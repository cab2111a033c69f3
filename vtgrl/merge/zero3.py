"""A run's checkpoint (DeepSpeed shards of any ZeRO stage) -> a Hugging Face folder, compared tensor by tensor at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.model.load import empty_model, load_plain, save_pretrained

PREFIX = "hf."
"""The policy holds the Hugging Face model under this name."""

UNREADABLE = (OSError, ValueError, RuntimeError, AssertionError, EOFError, KeyError, UnpicklingError)
"""What torch.load and DeepSpeed raise for files that are missing, cut or not theirs, and for weights of another shape."""

LORA_A, LORA_B, BASE = ".lora_A.default.", ".lora_B.default.", ".base_layer."


@dataclass(frozen=True)
class MergeReport:
    """What was written: folder, number of tensors, their dtype, and how many adapters went into the weights."""

    out: str
    tensors: int
    dtype: str
    adapters: int


def merge_checkpoint(ckpt: Path | str, *, out: Path | str) -> MergeReport:
    """`RUN/ckpt/step_N`, or `RUN/ckpt/best`, -> `out`: safetensors with index, config, tokenizer, processor and chat template.

    Raises:
        ConfigError: not a checkpoint of ours, pieces are missing, or `out` is in use.
        RunError: the written folder does not hold the same tensors.
    """
    ckpt, out = best_of(Path(ckpt)), Path(out)
    if not (ckpt / "state.json").is_file():
        raise ConfigError(f"{ckpt}: no state.json; give a checkpoint folder such as RUN/ckpt/step_000050")
    try:
        lora_scale = float(json.loads((ckpt / "state.json").read_text())["lora_scale"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{ckpt / 'state.json'}: not one of ours or damaged ({error!r}); take another checkpoint") from error
    state, adapters = merge_adapters(gather_state(ckpt / "ds"), scale=lora_scale)
    model, processor = empty_model(ckpt / "hf")
    dtype = getattr(torch, str(model.config.dtype).removeprefix("torch."))
    state = {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
    _check_names(model, state, where=str(ckpt))
    save_pretrained(model.to(dtype), processor, out, state=state)
    _compare(out, state)
    return MergeReport(str(out), len(state), str(dtype).removeprefix("torch."), adapters)


def best_of(ckpt: Path) -> Path:
    """`RUN/ckpt/best` stands for the checkpoint that validated best; any other path for itself.

    Raises:
        ConfigError: the run validated nothing.
    """
    if ckpt.name != "best":
        return ckpt
    index = ckpt.with_name("best.json")
    if not index.is_file():
        raise ConfigError(f"{index}: not there; the run validated nothing (train.val_every), so name a checkpoint such as step_000050")
    return ckpt.with_name(json.loads(index.read_text())["checkpoint"])


def gather_state(folder: Path) -> dict[str, torch.Tensor]:
    """Whole tensors of all parameters and buffers, by their name in the Hugging Face module.

    Raises:
        ConfigError: a rank's file is missing or cut.
    """
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    try:
        whole = folder / "mp_rank_00_model_states.pt"  # stages 0-2: the module as every rank holds it (stage 1: also all frozen weights)
        found = torch.load(whole, map_location="cpu", weights_only=False)["module"] if whole.is_file() else {}
        if any(folder.glob("*_optim_states.pt")):  # stages 1-3: the optimizer's fp32 weights, which bf16 ones were rounded from
            found |= get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name)
    except UNREADABLE as error:
        raise ConfigError(f"{folder}: cannot read the shards ({error}); is a rank's file missing or cut?") from error
    return {name.removeprefix(PREFIX): tensor for name, tensor in found.items()}


def merge_adapters(state: dict[str, torch.Tensor], *, scale: float) -> tuple[dict[str, torch.Tensor], int]:
    """(tensors under plain names with W + scale * B A where an adapter sits, number of adapters)."""
    plain = {name.replace(BASE, "."): tensor for name, tensor in state.items() if ".lora_" not in name}
    adapted = [name for name in state if LORA_A in name]
    for name in adapted:
        target = name.replace(LORA_A, ".")
        delta = scale * state[name.replace(LORA_A, LORA_B)].float() @ state[name].float()
        plain[target] = (plain[target].float() + delta).to(plain[target].dtype)
    return plain, len(adapted)


def _check_names(model: Any, state: dict[str, torch.Tensor], *, where: str) -> None:
    """Every tensor the config's model has, and no other."""
    wanted = set(model.state_dict())
    missing, unexpected = sorted(wanted - set(state)), sorted(set(state) - wanted)
    if missing or unexpected:
        names = ", ".join([*missing, *unexpected][:3])
        raise ConfigError(f"{where}: {len(missing)} tensors missing and {len(unexpected)} unexpected for its config, first: {names}")


def _compare(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Load the folder as a user would and compare every tensor bit by bit.

    Raises:
        RunError: naming the first tensor that differs.
    """
    written = load_plain(folder).state_dict()
    for name, tensor in state.items():
        if name not in written or not torch.equal(tensor, written[name]):
            raise RunError(f"{folder}: {name} differs from the checkpoint after writing; do not use this folder")
