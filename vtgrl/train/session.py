"""Everything a run holds, put together once: ranks, folder, model, data, engine, monitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.log import logger
from vtgrl.core.recipe import dump_recipe
from vtgrl.core.runfolder import RunFolder
from vtgrl.core.schema import GrpoRecipe, SftRecipe
from vtgrl.core.types import Sample
from vtgrl.data.load import load_samples
from vtgrl.data.select.hold_out import hold_out
from vtgrl.data.select.rows import select_rows
from vtgrl.eval.summary import summary_names
from vtgrl.model.load import LoadedModel, load_model
from vtgrl.model.prompting import PromptBuilder
from vtgrl.model.types import Prompt
from vtgrl.train.ckpt import Checkpoints
from vtgrl.train.ds_config import ds_config
from vtgrl.train.engine_ds import DsEngine
from vtgrl.train.order import Order, copy_numbers, make_order
from vtgrl.train.world import World, join_world

Recipe = SftRecipe | GrpoRecipe


@dataclass(frozen=True, eq=False)
class Session:
    """The parts of a run. `failed`: why a sample could not become a prompt, by id, over the run. `upcoming`: this rank's samples of
    the next step, whose clips are made ready while the current one trains."""

    recipe: Any
    world: World
    folder: RunFolder
    loaded: LoadedModel
    builder: PromptBuilder
    engine: DsEngine
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    order: Order
    checkpoints: Checkpoints
    failed: dict[str, str]
    upcoming: list[Sample]

    def prompts(self, step: int, samples: Sequence[Sample]) -> list[Prompt]:
        """Prompts of this rank's share of a step; a sample whose video or text cannot be used is logged, counted and left out."""
        out = []
        self.builder.prefetch([*samples, *self.upcoming])
        copies = self.world.shard(copy_numbers(self.order.batch_at(step)))
        for sample, copy in zip(samples, copies, strict=True):
            try:
                out.append(replace(self.builder.build(sample), copy=copy))
            except DataError as error:
                if sample.id not in self.failed:
                    logger.warning("left out: %s", error)
                self.failed[sample.id] = str(error)
        return out

    def write_model_files(self, folder: Path) -> None:
        """Config, generation config, tokenizer and processor, without weights."""
        self.loaded.save_files(folder)


def open_session(recipe: Any, *, run_dir: Path, resume: str | None) -> Session:
    """Set a run up on this rank (collective).

    Raises:
        ConfigError, DataError: something the recipe names cannot be used.
        RunError: ranks hold different recipes or data.
    """
    torch.manual_seed(recipe.train.seed)
    world = join_world()
    text = dump_recipe(recipe)
    world.agree("the recipe", text)
    folder = RunFolder.create(run_dir, resolved_yaml=text, resume=resume is not None) if world.main else None
    world.barrier()
    folder = folder or RunFolder(Path(run_dir))
    train, val = _rows(recipe)
    world.agree("the training rows", "\n".join(s.id for s in train))
    order = make_order(recipe, train)
    _check_best_metric(recipe)
    loaded = load_model(
        recipe.model.path,
        dtype=recipe.model.dtype,
        freeze=recipe.model.freeze,
        lora=recipe.model.lora,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        seed=recipe.train.seed,
    )
    builder = PromptBuilder(
        processor=loaded.processor,
        family=loaded.family,
        config=loaded.config,
        video=recipe.video,
        template=recipe.data.prompt,
        max_prompt_tokens=recipe.data.max_prompt_tokens,
        eos_ids=sorted(loaded.eos_ids),
    )
    settings = recipe.train
    return Session(
        recipe=recipe,
        world=world,
        folder=folder,
        loaded=loaded,
        builder=builder,
        engine=DsEngine(loaded.policy.to(world.device), config=ds_config(recipe, world_size=world.size), world=world),
        train=train,
        val=val,
        order=order,
        checkpoints=Checkpoints(folder.ckpt_dir, keep_last=settings.keep_last, world=world),
        failed={},
        upcoming=[],
    )


def _check_best_metric(recipe: Any) -> None:
    """Known before the first step, not only at the first validation."""
    names = [f"val/{name}" for name in summary_names()]
    if recipe.train.val_every and recipe.train.best_metric not in names:
        raise ConfigError(f"train.best_metric: no metric {recipe.train.best_metric!r}; there are {', '.join(names)}")


def _rows(recipe: Any) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Training and validation rows; validation is empty when the recipe names none."""
    data = recipe.data
    rows, apart = hold_out(load_samples(data.source, path=data.path, videos=data.videos, limit=data.limit).samples, data.hold_out)
    train = select_rows(rows, data.select)
    if not data.val_path:
        return train, apart[: recipe.train.val_limit or None]
    val = load_samples(data.source, path=data.val_path, videos=data.val_videos or data.videos, limit=recipe.train.val_limit)
    return train, tuple(val.samples)
