"""Model folders that plain transformers and vLLM read, written so that a crash never leaves half of one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from vtgrl.core.errors import ConfigError, RunError


def save_pretrained(model: PreTrainedModel, processor: Any, out: Path | str, *, state: Mapping[str, torch.Tensor] | None = None) -> Path:
    """Write weights (safetensors), config, generation config, processor and chat template to `out`, all or nothing.

    Args:
        model: gives names, config and, without `state`, the weights; adapters are merged into what is written.
        state: weights under the model's own parameter names, gathered elsewhere.

    Raises:
        ConfigError: `out` exists and is not empty.
        RunError: a tensor is empty (weights not gathered), or the disk is full.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not empty: choose another folder or delete it")
    state = dict(merged_state(model) if state is None else state)
    empty = [name for name, tensor in state.items() if tensor.numel() == 0]
    if empty:
        raise RunError(f"{out}: {len(empty)} tensors hold no values (first {empty[0]}): sharded weights were not gathered; nothing written")
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        model.save_pretrained(scratch, state_dict=state)
        save_side_files(model.config, model.generation_config, processor, scratch)
        scratch.chmod(0o755)
        if out.is_dir():
            out.rmdir()
        scratch.rename(out)
    except (OSError, SafetensorError) as error:  # safetensors wraps a full disk in its own
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunError(f"{out}: cannot be written: {why}; free space or choose another folder") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return out


def save_side_files(config: Any, generation_config: Any, processor: Any, folder: Path) -> None:
    """Everything beside the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    if generation_config is not None:
        generation_config.save_pretrained(folder)
    processor.save_pretrained(folder)


def merged_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """State dict of the model as it would be without adapters: each adapter's update added to its layer's weight."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    deltas = {
        f"{name}.weight": sum(module.get_delta_weight(adapter) for adapter in module.active_adapters)
        for name, module in model.named_modules()
        if isinstance(module, BaseTunerLayer)
    }
    state: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        state[plain] = tensor + deltas[plain].to(tensor.dtype) if plain in deltas else tensor
    return state
