"""What the scripted server says: a toy tokenizer, the answers to canaries, and replies."""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import re
from dataclasses import dataclass

EOS = 256
FIRST_WORD = 257
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = [c + v for c in _CONSONANTS for v in _VOWELS]
WORDS = [" " + a + b for a in _SYLLABLES for b in _SYLLABLES]  # 4900 two-syllable words
WORD_IDS = {word: FIRST_WORD + index for index, word in enumerate(WORDS)}
_PIECE = re.compile(rb" [a-z]{4}(?![a-z])")
COLOURS = ("blue", "green", "indigo", "orange", "purple", "red", "violet", "yellow")


def tokenize(text: str) -> list[int]:
    """One id for each vocabulary word (with its leading space), one per UTF-8 byte for the rest."""
    raw = text.encode("utf-8", "surrogatepass")
    ids: list[int] = []
    position = 0
    for match in _PIECE.finditer(raw):
        word = WORD_IDS.get(match.group().decode())
        if word is not None:
            ids += raw[position : match.start()]
            ids.append(word)
            position = match.end()
    return ids + list(raw[position:])


def token_bytes(token: int) -> bytes:
    """The bytes that `token` stands for; the end-of-sequence token stands for none."""
    if token < EOS:
        return bytes([token])
    return b"" if token == EOS else WORDS[token - FIRST_WORD].encode()


def detokenize(tokens: list[int]) -> str:
    """The inverse of `tokenize`."""
    return b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")


def known_answer(prompt: str, answers: list[tuple[str, str]]) -> str | None:
    """The right answer where the prompt is a canary this server knows, else None."""
    for needle, answer in answers:
        if needle in prompt:
            return answer
    lower = prompt.lower()
    sum_ = re.search(r"(\d+)\s*(\+|-|\*|x|plus|minus|times|multiplied by)\s*(\d+)", lower)
    value = 42
    if sum_:
        a, b = int(sum_[1]), int(sum_[3])
        value = a + b if sum_[2] in ("+", "plus") else a - b if sum_[2] in ("-", "minus") else a * b
    if "json" in lower and "answer" in lower:
        return json.dumps({"answer": str(value), "unit": "widgets"}, separators=(",", ":"))
    if "alphabetic" in lower or "colour" in lower or "color" in lower:
        found = sorted(c for c in COLOURS if re.search(rf"\b{c}\b", lower))
        if len(found) > 1:
            return ", ".join(found)
    if "capital of france" in lower:
        return "The capital of France is Paris."
    copy = re.search(r"(?:copy|repeat)[^:\n]*:\s*\"?([^\"\n]+)", prompt, re.IGNORECASE)
    if copy:
        return copy[1].strip()
    return str(value) if sum_ else None


def corrupt(answer: str) -> str:
    """A wrong answer that still looks like one: the form is kept, the value is not."""
    if "42" in answer:
        return answer.replace("42", "12")
    if ", " in answer:
        return ", ".join([*answer.split(", ")[:-1], "yellow"])
    return answer[:-1] + ("1" if answer[-1:] != "1" else "2")


def draw(ids: list[int], index: int, salt: bytes = b"") -> int:
    """A number that is a pure function of prompt, position and salt."""
    key = prompt_key(tuple(ids)) + salt + index.to_bytes(4, "big")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


@functools.lru_cache(maxsize=1024)
def prompt_key(ids: tuple[int, ...]) -> bytes:
    return hashlib.blake2b(repr(ids).encode(), digest_size=8).digest()


@dataclass
class Reply:
    """What will be said to one request, decided before the first token leaves."""

    prompt_ids: list[int]
    tokens: list[int]
    runners_up: list[int]
    finish: str

    def pieces(self) -> list[str]:
        """Text that each token adds; one that ends inside a character adds nothing yet."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(token_bytes(token)) for token in self.tokens]

    def top(self, index: int, k: int) -> list[tuple[int, float]]:
        """The `k` likeliest tokens at `index`, with log-probabilities an even margin apart."""
        margin = 0.05 + draw(self.prompt_ids, index, b"margin") % 3000 / 1000
        order = [self.tokens[index], self.runners_up[index]]
        salt = 0
        while len(order) < k:
            token = FIRST_WORD + draw(self.prompt_ids, index, b"top%d" % salt) % len(WORDS)
            salt += 1
            if token not in order:
                order.append(token)
        return [
            (token, round(-0.1 - rank * margin, 6)) for rank, token in enumerate(order[: max(k, 1)])
        ]
