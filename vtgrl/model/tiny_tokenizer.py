"""A small byte-level BPE tokenizer for tiny checkpoints: trained in a second, always to the same 1,024 entries.

The words of generated clips and of the usual grounding prompts become one token each, digits stay single ("12.50s" is
`1 2 . 5 0 s`, so that a model learns one digit at a time), and the reasoning tags are one ordinary token each: they
survive `decode(skip_special_tokens=True)`.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 1024
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIALS = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Names and order as Qwen-VL has them; ids start at 0."""

TAGS = ("<think>", "</think>", "<answer>", "</answer>")

CHAT_TEMPLATE = (
    "{%- for turn in messages -%}"
    "{{- '<|im_start|>' + turn.role + '\\n' -}}"
    "{%- if turn.content is string -%}{{- turn.content -}}{%- else -%}"
    "{%- for part in turn.content -%}"
    "{%- if part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
    "{%- elif part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""ChatML turns; a video or an image is one placeholder between its two markers."""

TEXT_CHAT_TEMPLATE = (
    "{%- for turn in messages -%}"
    "{{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""The same for a text model, whose turns are plain strings."""

_WORDS = {
    "colour": "red green blue yellow orange purple pink cyan white black grey brown magenta",
    "shape": "square circle triangle star diamond cross ring bar shape object square. circle. triangle. star. diamond. cross.",
    "verb": "visible moves appears disappears vanishes enters leaves crosses stays rises falls grows shrinks blinks rotates "
    "moving standing still jumps stops turns touches overlaps",
    "place": "left right top bottom middle centre corner edge upper lower first last",
}
_PROSE = """
When is the shape visible? When does it appear in the video? When does it move? Find the time span of the event. Find the
exact moment in which the object can be seen. Give the start and the end of the event in seconds, for example from 2.0s to
5.5s. Answer with the start and end time in seconds. Which of the following is true? Select the best option. A. B. C. D.
Think about the question first, then write the answer. Write your thoughts between the tags <think> and </think> and the
result between <answer> and </answer>. The given query happens in the video. Your task is to determine the precise period
of time that matches the description. Output only the time range. Use this format: start time to end time. The video
lasts seconds. You are a helpful assistant that watches videos and answers questions about them. Watch the clip carefully.
Describe what happens, with times. I look for the frames where it is visible; it appears at and it is gone after. It is
seen from the beginning to the end. Between these two moments nothing else changes. To locate the event accurately, note
each time that the scene changes, analyse the order of events and verify the boundaries. Provide a short reason before the
final result. The person opens a door, takes food, sits down, turns on a light, holds a book, puts a cup on the table,
closes the window, eats a sandwich, drinks water, looks at a phone, laughs, walks through the room, cooks, smiles, pours.
Question: Options: Please respond with the letter. Timestamps are given as numbers with decimals. within tag tags thought
process reasoning specific specified key relevant content explanation reply following user system assistant text image
So the stretch that fits is this one. Put your thoughts here. State where it begins and ends. Finish with an answer that looks
like this. At first, the dog runs across the meadow. In front of the fence it crouches and lands on the other side. Think it
through, one line for each thing; give every line its time. Another complete reply to the query, exactly in this form, such as
the sentence tells. What is sought? Therefore the sought moment is the last of these. Reason before you answer. Given that,
first and last second, take place, two decimals after each number, both, all, from, when, then, there, here, about, over, not,
above, below, beside, middle. Yes. No. Maybe. Never again.
"""
_TIME = "<answer>{a}.{b}{c}s to {c}{a}.{b} seconds</answer> <{a}.{b} seconds> {a}{b}, {c}. ({a}:{b})"


def _corpus() -> list[str]:
    """Sentences in proportions that make whole words of the generated clips' vocabulary the first merges."""
    words = product(*(words.split() for words in _WORDS.values()))
    scenes = [f"When is the {c} {s} visible? The {c} {s} {v} to the {p}." for c, s, v, p in words]
    times = [_TIME.format(a=a, b=b, c=c) for a, b, c in product("0123456789", "05", "12")]
    line_starts = [w for w in _PROSE.split() if w[0].isupper()]
    return scenes[::7] + _PROSE.split("\n") * 40 + line_starts * 10 + times * 5


@cache
def _trained() -> str:
    """The tokenizer as JSON: trained once a process."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(TAGS),
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(_corpus(), trainer)
    raw.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    assert raw.get_vocab_size() == VOCAB_SIZE, raw.get_vocab_size()
    return str(raw.to_str())


def make_tokenizer(*, vision: bool = True) -> PreTrainedTokenizerFast:
    """The tokenizer, always the same. `vision` picks the chat template that takes videos; the vocabulary is the same."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[s for s in SPECIALS if s not in (END_OF_TEXT, TURN_END)],
        chat_template=CHAT_TEMPLATE if vision else TEXT_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
