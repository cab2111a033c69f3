"""How the demo asks: prompt, frames, decoding. From the recipe of the run that made the model, else defaults; then what the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from vtgrl.core.log import logger
from vtgrl.core.recipe import load_recipe
from vtgrl.core.registry import Component, opt
from vtgrl.core.schema import SamplingConfig, VideoConfig, greedy, section

EFFORT = ("backend", "timeout_s", "workers", "ahead_gb", "cache_dir", "cache_gb")
"""Keys of `video` that say how a run decodes, not what the model sees."""


@dataclass(frozen=True)
class DemoConfig:
    """Keys of `vtgrl demo`."""

    prompt: Component = opt("time_r1", "prompt template", kind="prompt")
    video: VideoConfig = section(VideoConfig)
    sampling: SamplingConfig = section(greedy)
    max_prompt_tokens: int = opt(8192, "a longer prompt is reported, never cut", ge=1)


def load_settings(model: str, *, prompt: str = "", keys: Sequence[str] = ()) -> DemoConfig:
    """Settings for a model. `prompt`: a template's name or `{name: ..., key: ...}`; `keys`: `key=value` of `DemoConfig`.

    Raises:
        ConfigError: an unknown key, template or value, one line each.
    """
    named = [f"prompt={prompt}"] if prompt else []
    return load_recipe(DemoConfig, overrides=[*of_run(model), *named, *keys])


def of_run(model: str) -> list[str]:
    """Prompt, frames and decoding of the run whose `model/` this is, as `key=value`; empty when it is no run's model."""
    file = Path(model).absolute().parent / "resolved.yaml"
    if not Path(model).is_dir() or not file.is_file():
        return []
    recipe: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    known = {field.name for field in fields(VideoConfig)} - set(EFFORT)
    video = {key: value for key, value in recipe["video"].items() if key in known}
    logger.info("asking as the run did: prompt %s, frames and decoding of %s", recipe["data"]["prompt"]["name"], file)
    return [f"prompt={_flow(recipe['data']['prompt'])}", f"video={_flow(video)}", f"sampling={_flow(recipe['validation'])}"]


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf")).strip()
