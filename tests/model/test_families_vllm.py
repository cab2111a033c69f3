"""Prompt ids and M-RoPE positions are those of vLLM, for every family, frame rate and dtype."""

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoProcessor

from vtgrl.data.video.types import Clip
from vtgrl.model.families import family_for
from vtgrl.model.families._qwen_vl import VIDEO_KWARGS
from vtgrl.model.media import make_medium

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
CLIPS: dict[str, tuple[Any, ...]] = {  # frames, seconds between them, sides in merged patches
    "2 fps": (16, 0.5),
    "4 fps": (6, 0.25),
    "8 fps": (6, 0.125),
    "slow": (6, 1.5),
    "0.75 s a slice": (8, 0.375),
    "not a binary fraction": (80, 0.5084),
    "one slice": (2, 1.0),
    "30 fps": (8, 1 / 30),
    "odd": (5, 0.5),
    "larger than the processor's bound": (4, 0.5, 9, 10),
}


def clip(frames: int, seconds: float, height: int = 2, width: int = 3, *, unit: int) -> Clip:
    """Noise; every third frame comes late, as in a variable-frame-rate file."""
    pixels = np.random.default_rng(frames).integers(0, 255, (frames, height * unit, width * unit, 3), dtype=np.uint8)
    times = tuple(i * seconds + (seconds / 3 if i % 3 == 2 else 0.0) for i in range(frames))
    return Clip("c", pixels, times, (frames - 1) / (times[-1] - times[0]), frames * seconds, 30.0)


def request(folder: Path, name: str, dtype: str) -> tuple[Any, tuple[Any, ...]]:
    """(what we make of a clip, what vLLM is asked)."""
    config, processor = AutoConfig.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    family = family_for(config)
    medium = make_medium(clip(*CLIPS[name], unit=family.unit(config)), processor=processor, family=family)
    parts = [{"type": "text", "text": "Watch:"}, {"type": "video"}, {"type": "text", "text": "When is the red square visible?"}]
    text = processor.apply_chat_template([{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True)
    ids = family.expand(processor, text, (medium,))
    positions_3P, free = family.positions(config, tuple(ids), (medium,))
    ours = (ids, positions_3P.tolist(), free, len(medium.pixel_values))
    return ours, (str(folder), dtype, text, medium.frames_THWC, medium.metadata, VIDEO_KWARGS)


@pytest.fixture(scope="module")
def both(tiny_dir: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], tuple[Any, Any]]:
    """(family, clip, dtype) -> (ours, vLLM's), all from one child process."""
    keys = [(f, name, "float32") for f in FAMILIES for name in CLIPS] + [(f, "not a binary fraction", "bfloat16") for f in FAMILIES]
    made = [request(tiny_dir(f), name, dtype) for f, name, dtype in keys]
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "requests.pkl").write_bytes(pickle.dumps([asked for _, asked in made]))
    child = [sys.executable, str(Path(__file__).parent / "vllm_processor.py"), str(folder / "requests.pkl"), str(folder / "answers.pkl")]
    subprocess.run(child, check=True, timeout=240)
    answers = pickle.loads((folder / "answers.pkl").read_bytes())
    return {key: (ours, theirs) for key, (ours, _), theirs in zip(keys, made, answers, strict=True)}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CLIPS)
def test_ids_and_positions_are_vllms(both: Any, family: str, name: str) -> None:
    ours, theirs = both[family, name, "float32"]
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    assert ours[2:] == theirs[2:]


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_do_not_depend_on_the_engines_dtype(both: Any, family: str) -> None:
    """vLLM keeps the seconds per slice in the model's dtype: 1.0169 would become 1.0156 in bf16 and move late slices."""
    ours, theirs = both[family, "not a binary fraction", "bfloat16"]
    assert ours[1] == theirs[1]
    assert torch.tensor(ours[1])[0].max() > 25
