"""Child process of test_families_vllm: what vLLM's own processor makes of prompts, without starting an engine.

python vllm_processor.py REQUESTS.pkl ANSWERS.pkl
REQUESTS: list of (model folder, dtype, text, frames_THWC, metadata, mm_processor_kwargs). ANSWERS: one
(prompt ids, positions [3, P], next position, pixel rows) for each, all lists.
"""

import os
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}


@cache
def model(folder: str, dtype: str) -> tuple[Any, Any]:
    """(processor, a model object without weights that knows its config) of vLLM."""
    from vllm.config import ModelConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY

    config = ModelConfig(model=folder, dtype=dtype, max_model_len=2048)
    cls = MULTIMODAL_REGISTRY._get_model_cls(config)
    shell = object.__new__(cls)
    object.__setattr__(shell, "config", config.hf_config)
    return MULTIMODAL_REGISTRY.create_processor(config), shell


def answer(folder: str, dtype: str, text: str, frames: Any, metadata: dict[str, Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Ids, positions and pixels as vLLM has them."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec

    processor, shell = model(folder, dtype)
    items = processor.info.parse_mm_data({"video": [(frames, {**metadata, "do_sample_frames": False})]})
    out = processor(text, items, hf_processor_mm_kwargs=kwargs)
    (where,), (data,) = out["mm_placeholders"]["video"], out["mm_kwargs"]["video"]
    feature = MultiModalFeatureSpec(data=data, modality="video", identifier="0", mm_position=where)
    ids = out["prompt_token_ids"]
    positions, delta = shell.get_mrope_input_positions(ids, [feature])
    return ids, positions.tolist(), delta + len(ids), len(data["pixel_values_videos"].data)


if __name__ == "__main__":
    requests = pickle.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_bytes(pickle.dumps([answer(*request) for request in requests]))
