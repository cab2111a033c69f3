"""Samples become prompts: template, chat format, clip, expanded ids and positions; and answers become supervised ids.

One processor result feeds trainer and engine. The engine gets `Prompt.text` (one placeholder per clip) and the frames,
and must report back exactly `Prompt.input_ids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.registry import Component
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import Sample
from vtgrl.data.prompts.types import VIDEO, Chat
from vtgrl.model.families.base import Family
from vtgrl.model.media import CACHE_BYTES, MediaStore
from vtgrl.model.types import Medium, Prompt

Messages = list[dict[str, Any]]
TURN_END = "<|im_end|>"


class PromptBuilder:
    """Builds prompts for one model, one template and one frame policy."""

    def __init__(
        self,
        *,
        processor: Any,
        family: Family,
        config: Any,
        video: VideoConfig,
        template: Component,
        max_prompt_tokens: int,
        eos_ids: Sequence[int] = (),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`processor`: the model's processor, or its tokenizer when it is a text model. `eos_ids`: stop ids beside those
        that config and tokenizer name (`ModelParts.eos_ids` has those of the generation config).

        Raises:
            ConfigError: no chat template; a number in `video` that makes no sense.
        """
        self.processor, self.family, self.config = processor, family, config
        self.template, self.max_prompt_tokens = template, max_prompt_tokens
        self.tokenizer = tokenizer_of(processor)
        if not (processor.chat_template or self.tokenizer.chat_template):
            raise ConfigError("the model has no chat template: add chat_template.jinja to its folder")
        self.eos_ids = frozenset(eos_ids) | stop_ids(self.tokenizer, config)
        self.media: MediaStore | None = None
        if family.unit(config):
            self.media = MediaStore(processor=processor, family=family, config=config, video=video, cache_bytes=cache_bytes)
        self._specials = special_tokens(self.tokenizer)

    def build(self, sample: Sample) -> Prompt:
        """Decode (or find) the clip, fill in the template, tokenize.

        Raises:
            DataError: the clip cannot be read, the prompt is longer than `max_prompt_tokens` (nothing is ever cut), or
                its text holds a special token; names the row.
            ConfigError: a row with a video for a text model.
        """
        media = self._media(sample)
        duration = float(media[0].metadata["duration"]) if media else 0.0
        chat = self._chat(sample, duration=duration)
        text = self._render(self._messages(chat), sample, answer=None)
        input_ids = self._expand(text, sample, media)
        vision_index = self._vision_index(input_ids, sample, media)
        self._check_length(input_ids, len(vision_index), sample)
        positions_3P, next_position = self.family.positions(self.config, input_ids, media)
        return Prompt(sample, text, input_ids, media, vision_index, positions_3P, next_position, duration)

    def target_ids(self, sample: Sample, prompt: Prompt) -> tuple[int, ...]:
        """Ids of the answer that SFT teaches, end token included: what the full chat has beyond the prompt.

        Raises:
            DataError: the template gives no answer for the row; the chat format does not continue the prompt, changes the
                answer's text or does not end it with a stop token.
        """
        chat = self._chat(sample, duration=prompt.duration)
        if not chat.target:
            raise DataError(f"row {sample.id}: prompt template {self.template.name!r} has no answer to teach for it")
        self._check_plain(chat.target, sample, "the answer")
        full = self._expand(self._render(self._messages(chat), sample, answer=chat.target), sample, prompt.media)
        if full[: len(prompt.input_ids)] != prompt.input_ids:
            raise DataError(f"row {sample.id}: with its answer, the chat does not begin with the prompt's ids; look at the chat template")
        return self._until_stop(full[len(prompt.input_ids) :], chat.target, sample)

    def chat(self, prompt: Prompt) -> Chat:
        """The template's chat of a built prompt: its answer to learn, and what a thought may begin with."""
        return self._chat(prompt.sample, duration=prompt.duration)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, nothing added. Special tokens written in it become themselves."""
        return tuple(self.tokenizer(text, add_special_tokens=False).input_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def prefetch(self, samples: Iterable[Sample]) -> None:
        """Say which samples will be built next: their clips are decoded ahead (when `video.workers` is set)."""
        if self.media is not None:
            self.media.prefetch(s.video for s in samples if s.video is not None)

    def close(self) -> None:
        """Stop decoding processes."""
        if self.media is not None:
            self.media.close()

    def _media(self, sample: Sample) -> tuple[Medium, ...]:
        if sample.video is None:
            return ()
        if self.media is None:
            raise ConfigError(f"row {sample.id} has a video, but this is a text-only model: choose a vision-language model")
        return (self.media.get(sample.video),)

    def _chat(self, sample: Sample, *, duration: float) -> Chat:
        """The template's chat, checked: as many videos as the row has, no special token in its text."""
        chat: Chat = self.template(sample, duration=duration)
        shown, wanted = chat.user.count(VIDEO), int(sample.video is not None)
        if shown != wanted:
            raise DataError(f"row {sample.id}: prompt template {self.template.name!r} shows {shown} videos, the row has {wanted}")
        for part in (*chat.user, chat.system or "", chat.opening or "", *chat.events):
            if part != VIDEO:
                self._check_plain(part, sample, "the prompt")
        return chat

    def _check_plain(self, text: str, sample: Sample, where: str) -> None:
        """A special token inside user text would end a turn or stand for a clip that is not there."""
        for token in self._specials:
            if token in text:
                raise DataError(f"row {sample.id}: {where} contains the special token {token!r}; remove it from the row")

    def _messages(self, chat: Chat) -> Messages:
        system: Messages = [] if chat.system is None else [{"role": "system", "content": chat.system}]
        if self.media is None:
            return [*system, {"role": "user", "content": "".join(chat.user)}]
        parts = [{"type": "video"} if part == VIDEO else {"type": "text", "text": part} for part in chat.user]
        return [*system, {"role": "user", "content": parts}]

    def _render(self, messages: Messages, sample: Sample, *, answer: str | None) -> str:
        """Chat text: up to where the assistant begins, or with the assistant's turn."""
        if answer is not None:
            content: Any = answer if self.media is None else [{"type": "text", "text": answer}]
            messages = [*messages, {"role": "assistant", "content": content}]
        try:
            text = self.processor.apply_chat_template(
                messages,
                chat_template=self.processor.chat_template or self.tokenizer.chat_template,
                tokenize=False,
                add_generation_prompt=answer is None,
            )
        except TemplateError as error:
            raise DataError(f"row {sample.id}: the model's chat template refuses it: {error}") from error
        return str(text)

    def _expand(self, text: str, sample: Sample, media: tuple[Medium, ...]) -> tuple[int, ...]:
        if media:
            shown = text.count(self.processor.video_token)
            if shown != len(media):
                raise DataError(f"row {sample.id}: the model's chat template wrote {shown} video placeholders for {len(media)} clips")
        return tuple(self.family.expand(self.processor, text, media))

    def _vision_index(self, input_ids: tuple[int, ...], sample: Sample, media: tuple[Medium, ...]) -> torch.Tensor:
        """[V] positions of the placeholders, one for each token that the tower will give."""
        token_id = self.family.vision_token_id(self.config)
        index_V = torch.tensor([i for i, token in enumerate(input_ids) if token == token_id], dtype=torch.int64)
        wanted = sum(t * h * w for t, h, w in (m.grid_thw for m in media))
        if media:
            wanted //= self.processor.video_processor.merge_size**2
        if len(index_V) != wanted:
            raise DataError(f"row {sample.id}: {len(index_V)} video placeholders for {wanted} vision tokens")
        return index_V

    def _check_length(self, input_ids: tuple[int, ...], vision: int, sample: Sample) -> None:
        if len(input_ids) > self.max_prompt_tokens:
            raise DataError(
                f"row {sample.id}: the prompt has {len(input_ids)} tokens ({vision} of video), more than "
                f"data.max_prompt_tokens={self.max_prompt_tokens}; show fewer or smaller frames, or raise the limit"
            )

    def _until_stop(self, rest: tuple[int, ...], target: str, sample: Sample) -> tuple[int, ...]:
        """The answer and its stop token, without what the chat format writes between turns."""
        end = next((i for i, token in enumerate(rest) if token in self.eos_ids), None)
        if end is None:
            raise DataError(f"row {sample.id}: the model's chat template ends the answer with no stop token")
        text = self.tokenizer.decode(list(rest[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if text != target:
            raise DataError(f"row {sample.id}: the model's chat template or tokenizer changes the answer {target!r} to {text!r}")
        return rest[: end + 1]


def tokenizer_of(processor: Any) -> PreTrainedTokenizerBase:
    """The tokenizer inside a processor; a text model's processor is its tokenizer."""
    tokenizer: PreTrainedTokenizerBase = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    return tokenizer


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Every token that plain text must not contain, longest first."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return tuple(sorted(added | set(tokenizer.all_special_tokens), key=lambda t: (-len(t), t)))


def stop_ids(tokenizer: PreTrainedTokenizerBase, config: Any) -> frozenset[int]:
    """Ids that end an answer: the config's, the tokenizer's, and <|im_end|> where the vocabulary has it."""
    named = config.get_text_config().to_dict().get("eos_token_id")
    ids = set(named) if isinstance(named, (list, tuple)) else {named}
    ids |= {tokenizer.eos_token_id, tokenizer.get_vocab().get(TURN_END)}
    return frozenset(i for i in ids if i is not None)
