"""Prompts of exact length, as token ids of the engine's own tokenizer.

A prompt is sent as ids: what was counted is what is prefilled, whatever a tokenizer does at a seam.
"""

from __future__ import annotations

import random

from objectives.client import Client
from objectives.prompt_suite import SUITE, SuitePrompt
from objectives.workload import PromptKind


class Prompt:
    """A prompt that is ready to be sent: its name and its token ids."""

    def __init__(self, name: str, ids: tuple[int, ...]) -> None:
        self.name = name
        self.ids = ids


async def make_prompts(
    client: Client, kind: PromptKind, *, tokens: int, count: int, seed: int
) -> list[Prompt]:
    """`count` prompts of exactly `tokens` tokens each; equal arguments give equal prompts.

    `suite` and `natural-chat` walk the suite from a place that `seed` decides, so that two sessions
    with one seed ask the same. `text` is the first prompt each time.
    """
    if kind == "random":
        return await _random_prompts(client, tokens, count, seed)
    if kind == "text":
        order = [SUITE[0]] * count
    else:
        start = random.Random(seed).randrange(len(SUITE)) if seed else 0  # noqa: S311 (not secret)
        order = [SUITE[(start + index) % len(SUITE)] for index in range(count)]
    build = _chat_prompt if kind == "natural-chat" else _plain_prompt
    made: dict[str, Prompt] = {}
    for prompt in order:
        if prompt.name not in made:
            made[prompt.name] = Prompt(prompt.name, await build(client, prompt, tokens))
    return [made[prompt.name] for prompt in order]


async def _plain_prompt(client: Client, prompt: SuitePrompt, tokens: int) -> tuple[int, ...]:
    """The prompt's task, with as much context before it as fills `tokens` exactly."""
    task = await client.tokenize(prompt.task)
    if len(task) >= tokens:
        return task[-tokens:]
    return await _context(client, prompt, tokens - len(task)) + task


async def _context(client: Client, prompt: SuitePrompt, tokens: int) -> tuple[int, ...]:
    """The start of the passages, the prompt's own first and the other prompts' after it.

    A context longer than the whole suite begins again; at the suite's size that is far past the
    lengths at which repetition has been seen to flatter n-gram speculation.
    """
    start = SUITE.index(prompt)
    ids: tuple[int, ...] = ()
    step = 0
    while len(ids) < tokens:
        passage = SUITE[(start + step) % len(SUITE)].passage
        ids += await client.tokenize(passage + "\n\n")
        step += 1
    return ids[:tokens]


async def _chat_prompt(client: Client, prompt: SuitePrompt, tokens: int) -> tuple[int, ...]:
    """The prompt as one user turn in the chat template, cut to length inside the context."""
    bare = await client.tokenize(messages=_turn(prompt.task))
    if len(bare) >= tokens:
        return bare[-tokens:]
    # Tokens of the template before the user's words: what two different turns have in common.
    other = await client.tokenize(messages=_turn("?"))
    opening = next(
        (i for i, (a, b) in enumerate(zip(bare, other, strict=False)) if a != b), len(other)
    )
    context = await _context(client, prompt, tokens - len(bare))
    return bare[:opening] + context + bare[opening:]


def _turn(content: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": content},)


async def _random_prompts(client: Client, tokens: int, count: int, seed: int) -> list[Prompt]:
    """Ids drawn from those that the suite's text uses, so that all are in the vocabulary."""
    pool: set[int] = set()
    for prompt in SUITE[:4]:
        pool.update(await client.tokenize(prompt.passage))
    generator = random.Random(seed)  # noqa: S311 (a workload, not a secret)
    words = sorted(pool)
    return [
        Prompt(f"random-{index}", tuple(generator.choice(words) for _ in range(tokens)))
        for index in range(count)
    ]
