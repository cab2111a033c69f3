"""A model folder (or hub name) -> the policy and everything beside it, checked: what would go wrong silently stops here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)

from vtgrl.core.errors import ConfigError
from vtgrl.core.log import logger
from vtgrl.core.schema import Dtype, LoraConfig
from vtgrl.model.checks import check_processor
from vtgrl.model.families import family_for
from vtgrl.model.families.base import Family
from vtgrl.model.policy import Policy
from vtgrl.model.prompting import stop_ids, tokenizer_of
from vtgrl.model.save import save_pretrained, save_side_files
from vtgrl.model.trainable import add_lora, freeze_parts

__all__ = ["LoadedModel", "ModelParts", "empty_model", "load_model", "load_parts", "load_plain", "save_pretrained"]

DTYPES: dict[Dtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class ModelParts:
    """A model without its weights. `processor` is the tokenizer when the model is text only. `eos_ids`: all ids that end
    an answer (generation config, config, tokenizer)."""

    path: str
    config: Any
    generation_config: GenerationConfig
    processor: Any
    family: Family
    eos_ids: frozenset[int]

    def save_files(self, folder: Path) -> None:
        """Write config, generation config, tokenizer, processor and chat template into `folder`."""
        save_side_files(self.config, self.generation_config, self.processor, folder)


@dataclass(frozen=True, eq=False)
class LoadedModel(ModelParts):
    """A model ready to train: `policy.hf` is the Hugging Face model with frozen parts and adapters, in train mode."""

    policy: Policy


def load_parts(path: str | Path) -> ModelParts:
    """Config, processor and family of a model, no weights.

    Raises:
        ConfigError: no such model, no processor or tokenizer in it, an unknown family, or a processor that would show
            the trainer other pixels than vLLM.
    """
    config = _load_config(str(path))
    family = family_for(config)
    processor = _load_processor(str(path), vision=family.unit(config) > 0)
    check_processor(processor, config, family, where=str(path))
    generation = _load_generation_config(str(path), config)
    named = generation.eos_token_id
    more = set(named) if isinstance(named, list) else {named} - {None}
    return ModelParts(str(path), config, generation, processor, family, stop_ids(tokenizer_of(processor), config) | more)


def load_plain(path: str | Path, *, dtype: Dtype | None = None) -> PreTrainedModel:
    """The Hugging Face model in eval mode; every weight comes from the files. `dtype` None: as it is stored.

    Raises:
        ConfigError: no such model, or weights missing from its files (nothing is ever initialised at random).
    """
    config = _load_config(str(path))
    try:
        model, info = _auto_class(config).from_pretrained(
            str(path),
            config=config,
            dtype="auto" if dtype is None else DTYPES[dtype],
            attn_implementation="sdpa",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `_check_complete` refuses them, by name
        )
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: weights cannot be read: {_first_line(error)}; is a file missing or cut?") from error
    _check_complete(info, where=str(path))
    return model


def load_model(
    path: str | Path,
    *,
    dtype: Dtype,
    freeze: Sequence[str] = (),
    lora: LoraConfig | None = None,
    gradient_checkpointing: bool = False,
    seed: int = 0,
) -> LoadedModel:
    """The policy, on the CPU, in train mode, with `requires_grad` set as asked.

    Args:
        freeze: parts that do not train: vision, merger, embed, lm_head, text, or glob patterns of parameter names.
        lora: adapters on the text model's linear layers (`r` 0: none); everything else is then frozen.
        gradient_checkpointing: recompute activations in the backward pass (non-reentrant).
        seed: of the adapters' start values, so that all ranks have the same.

    Raises:
        ConfigError: see `load_parts`, `load_plain`; a part to freeze that matches nothing; nothing left to train.
    """
    parts = load_parts(path)
    hf = load_plain(path, dtype=dtype)
    if lora is not None and lora.r > 0:
        add_lora(hf, lora, seed=seed)
    freeze_parts(hf, parts.family, freeze)
    if gradient_checkpointing:
        hf.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy(hf, family=parts.family).train()
    return LoadedModel(**{**vars(parts), "config": hf.config, "generation_config": hf.generation_config}, policy=policy)


def empty_model(path: str | Path) -> tuple[PreTrainedModel, Any]:
    """(model with memory but without values, processor) of a folder that needs no weights: fill it with
    `load_state_dict`. Not for running: buffers that are not saved have no values either."""
    parts = load_parts(path)
    with torch.device("meta"):
        model = _auto_class(parts.config).from_config(parts.config)
    model = model.to_empty(device="cpu")
    model.tie_weights()
    model.generation_config = parts.generation_config
    return model, parts.processor


def _auto_class(config: PretrainedConfig) -> Any:
    return AutoModelForImageTextToText if "vision_config" in config.sub_configs else AutoModelForCausalLM


def _load_config(path: str) -> Any:
    local = Path(path)
    if not local.is_dir() and (local.is_absolute() or path.startswith(".") or path.count("/") != 1):
        raise ConfigError(f"model.path {path!r}: no such folder")
    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        what = "not a model folder" if local.is_dir() else "no such folder, and not found on the hub"
        raise ConfigError(f"model.path {path!r}: {what}: {_first_line(error)}") from error
    _lift_nested_tie(config, local)
    return config


def _lift_nested_tie(config: Any, folder: Path) -> None:
    """Older checkpoints say only in `text_config` that the head is the embedding; transformers looks at the top level."""
    file = folder / "config.json"
    if not file.is_file():
        return
    raw = json.loads(file.read_text())
    if raw.get("text_config", {}).get("tie_word_embeddings") and "tie_word_embeddings" not in raw:
        config.tie_word_embeddings = True


def _load_processor(path: str, *, vision: bool) -> Any:
    loader, what = (AutoProcessor, "processor") if vision else (AutoTokenizer, "tokenizer")
    try:
        processor = loader.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: no {what} beside the weights ({_first_line(error)}); copy the start model's {what} files there"
        ) from error
    has_files = not Path(path).is_dir() or any(
        (Path(path) / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")
    )
    if (vision and not isinstance(processor, ProcessorMixin)) or not has_files:
        missing = what if has_files else "tokenizer"
        raise ConfigError(f"{path}: no {missing} beside the weights; copy the start model's {missing} files there")
    return processor


def _load_generation_config(path: str, config: Any) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:  # an optional file: transformers derives it from the config in the same way
        return GenerationConfig.from_model_config(config)


def _check_complete(info: dict[str, Any], *, where: str) -> None:
    missing = sorted(info["missing_keys"])
    if missing:
        raise ConfigError(
            f"{where}: weights lack {', '.join(missing[:3])}{_more(missing)}"
            + ("; the config says that the head is not tied to the embedding" if missing == ["lm_head.weight"] else "")
        )
    wrong = sorted(str(key[0]) for key in info["mismatched_keys"])
    if wrong:
        raise ConfigError(f"{where}: config and weights disagree on the shape of {', '.join(wrong[:3])}{_more(wrong)}")
    unused = sorted(info["unexpected_keys"])
    if unused:
        logger.warning("%s: %d weights have no place in the model: %s%s", where, len(unused), ", ".join(unused[:3]), _more(unused))


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 3} more" if len(names) > 3 else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
