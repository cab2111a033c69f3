"""TRL's update: its own `GRPOTrainer.train()`, with answers that are given instead of drawn.

TRL is imported when a trainer is made, not with this module.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import torch
from PIL import Image
from transformers import PrinterCallback, TrainerCallback

from vtgrl.bench.measure.kit import Kit
from vtgrl.bench.step_parts.clock import Clock
from vtgrl.bench.step_parts.our_side import LR, UNCUT, copied
from vtgrl.bench.step_parts.same_rollouts import SameRollouts
from vtgrl.core.errors import EnvironmentMissing
from vtgrl.model.load import DTYPES


def import_trl() -> Any:
    """The trl module.

    Raises:
        EnvironmentMissing: not installed, or its installation does not load.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # answers come in through `rollout_func`
    warnings.filterwarnings("ignore", message="TRL currently supports vLLM")  # no vLLM is used
    try:
        trl = import_module("trl")
        trl.GRPOTrainer  # noqa: B018 (loaded when first asked for)
    except (ImportError, RuntimeError) as error:
        raise EnvironmentMissing(f"bench step needs TRL ({error}): make bench installs it, or pip install 'vtgrl[bench]'") from error
    return trl


@dataclass(frozen=True)
class TrlSettings:
    """micro_batch: answers in one forward pass. rounds: GRPO steps of the run, each `epochs` optimizer steps."""

    dtype: str
    epochs: int
    micro_batch: int
    rounds: int


class TrlSide:
    """A trainer with its data. `train()` runs all rounds; after each, `between()` is called.

    rounds: seconds of each, "update" (old log-probs where TRL scores them, loss, backward, optimizer) and "prepare" (answers to
    tensors, pixels to patches, rewards, advantages). loss: of the last round. gradients: of its last optimizer step, when there is one
    round only.
    """

    def __init__(self, kit: Kit, rollouts: SameRollouts, settings: TrlSettings, *, between: Callable[[], None] = lambda: None) -> None:
        trl = import_trl()
        logging.getLogger("trl").setLevel(logging.ERROR)
        self.rollouts, self.settings, self.between = rollouts, settings, between
        self.clock = Clock()
        self.rounds: list[dict[str, float]] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.loss = 0.0
        with _not_a_rank():
            self.trainer = self._make(trl, kit)
        assert self.trainer.args.parallel_mode.value == "not_parallel", "TRL would wrap the model for several processes"
        self.trainer.remove_callback(PrinterCallback)  # it writes to stdout

    def _make(self, trl: Any, kit: Kit) -> Any:
        return _timed(trl, self.clock)(
            model=kit.hf(DTYPES["fp32"]),  # bf16 is TRL's own mixed precision
            reward_funcs=[self._reward],
            args=self._config(trl, kit),
            train_dataset=_rows(self.rollouts, copies=self.settings.rounds),
            processing_class=kit.processor,
            rollout_func=self._answers,
            callbacks=[_Rounds(self)],
        )

    def train(self) -> None:
        """All rounds."""
        self.loss = self.trainer.train().training_loss

    def ended(self, seconds: dict[str, float]) -> None:
        """A round is over."""
        scoring = seconds.get("scoring", 0.0)
        prepare = seconds["prepare"] - scoring
        self.rounds.append({"update": seconds["whole"] - prepare, "prepare": prepare})
        self.between()

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies by parameter name."""
        return copied(dict(self.trainer.model.named_parameters()))

    @cached_property
    def _ids(self) -> dict[str, list[list[int]]]:
        group = len(self.rollouts.answers[0])
        return {
            "prompt_ids": [list(p.peer_ids) for p in self.rollouts.prompts for _ in range(group)],
            "completion_ids": [list(a) for answers in self.rollouts.answers for a in answers],
        }

    def _answers(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        assert len(prompts) == len(self._ids["prompt_ids"]), "TRL asks for all answers of a step at once"
        return {**self._ids, "logprobs": None}

    def _reward(self, completions: list[Any], **_: Any) -> list[float]:
        return list(self.rollouts.rewards)

    def _config(self, trl: Any, kit: Kit) -> Any:
        """TRL's defaults but for sizes, logging, and what would make it do more work (checkpointing) or another update."""
        settings, answers = self.settings, len(self.rollouts.rewards)
        return trl.GRPOConfig(
            output_dir=str(kit.folder.parent / "trl"),
            max_steps=settings.rounds * settings.epochs,
            num_iterations=settings.epochs,
            per_device_train_batch_size=settings.micro_batch,
            gradient_accumulation_steps=answers // settings.micro_batch,
            num_generations=len(self.rollouts.answers[0]),
            max_completion_length=max(len(a) for group in self.rollouts.answers for a in group),
            learning_rate=LR,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=UNCUT,
            bf16=settings.dtype == "bf16",
            gradient_checkpointing=False,
            shuffle_dataset=False,
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=False,
            report_to="none",
            save_strategy="no",
            logging_steps=10**6,
            disable_tqdm=True,
        )


@contextmanager
def _not_a_rank() -> Iterator[None]:
    """Our side joins a process group of one and leaves LOCAL_RANK set; accelerate would take this process for a rank of many."""
    rank = os.environ.pop("LOCAL_RANK", None)
    try:
        yield
    finally:
        if rank is not None:
            os.environ["LOCAL_RANK"] = rank


def _timed(trl: Any, clock: Clock) -> Any:
    class Timed(trl.GRPOTrainer):  # type: ignore[misc,name-defined]
        """`scoring` lies inside `prepare`."""

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            with clock.lap("prepare"):
                return super()._prepare_inputs(generation_batch)

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():  # the loss
                return super()._get_per_token_logps_and_entropies(*args, **kwargs)
            with clock.lap("scoring"):
                return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    return Timed


class _Rounds(TrainerCallback):
    """Times each round and keeps gradients."""

    def __init__(self, side: TrlSide) -> None:
        self.side = side

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.side.settings.epochs == 0:
            self.side.clock.start()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self.side.settings.rounds == 1:
            self.side.gradients = copied({n: p.grad for n, p in model.named_parameters()})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.side.settings.epochs == 0:
            self.side.ended(self.side.clock.stop())


def _rows(rollouts: SameRollouts, *, copies: int) -> Any:
    """TRL's data set: the step's prompts once for each round."""
    import datasets

    rows: dict[str, list[Any]] = {"prompt": [[{"role": "user", "content": p.chat_text}] for p in rollouts.prompts] * copies}
    if rollouts.prompts[0].images:
        rows["images"] = [[Image.fromarray(pixels) for pixels in p.images] for p in rollouts.prompts] * copies
    return datasets.Dataset.from_dict(rows)
