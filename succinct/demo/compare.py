"""Free and constrained decoding of the same words, over several beam widths."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from succinct.demo.model import PHONEMES, PhonemeDecoder
from succinct.demo.pronunciations import read_pronunciations
from succinct.demo.search import Hypothesis, decode
from succinct.keys import ItemMap, KeyTable
from succinct.trie import LoudsTrie


@dataclass(frozen=True)
class Row:
    """What one way of decoding gave at one beam width.

    Parameters
    ----------
    beam_width
        Hypotheses kept, and outputs returned at most, for each word.
    in_catalog
        Share of the outputs that are pronunciations in the dictionary.
    recall
        Share of the words that have one of their own pronunciations among their outputs.
    seconds
        Time for all words.
    """

    beam_width: int
    constrained: bool
    outputs: int
    in_catalog: float
    recall: float
    seconds: float


class Comparison:
    """The decoder, the indexed catalog and a sample of words.

    Parameters
    ----------
    n_words
        Words to decode, drawn without replacement from those spelled with the letters a to z.
    seed
        Of the draw.

    Raises
    ------
    ModuleNotFoundError
        If a package of the extra ``demo`` is missing.
    ValueError
        If `n_words` is below one or above the number of words in the dictionary.
    """

    def __init__(self, n_words: int, seed: int = 0) -> None:
        self.model = PhonemeDecoder()
        catalog = read_pronunciations()
        self._own = catalog.by_word()
        keys = KeyTable.from_sequences(catalog.sequences)
        self.trie = LoudsTrie.build(keys)
        # Words that sound the same share one key, and the map returns all of them.
        self.items = ItemMap(self.trie, keys.key_ids, catalog.words)

        spellable = sorted(word for word in self._own if word.isascii() and word.isalpha())
        if not 1 <= n_words <= len(spellable):
            raise ValueError(f"expected 1 to {len(spellable)} words, got {n_words}")
        drawn = np.random.default_rng(seed).choice(len(spellable), n_words, replace=False)
        self.words = [spellable[i] for i in drawn.tolist()]

    def rows(self, beam_widths: Sequence[int]) -> Iterator[Row]:
        """Decode at each beam width, first freely, then constrained."""
        for beam_width in beam_widths:
            for constrained in (False, True):
                yield self._measure(beam_width, constrained)

    def _measure(self, beam_width: int, constrained: bool) -> Row:
        start = time.perf_counter()
        results = self.decode(self.words, beam_width, constrained)
        seconds = time.perf_counter() - start
        outputs = [tokens for hypotheses in results for _, tokens in hypotheses]
        found = sum(
            any(tokens in self._own[word] for _, tokens in hypotheses)
            for word, hypotheses in zip(self.words, results, strict=True)
        )
        return Row(
            beam_width=beam_width,
            constrained=constrained,
            outputs=len(outputs),
            in_catalog=sum(tokens in self.trie for tokens in outputs) / max(len(outputs), 1),
            recall=found / len(self.words),
            seconds=seconds,
        )

    def decode(
        self, words: Sequence[str], beam_width: int, constrained: bool
    ) -> list[list[Hypothesis]]:
        """Decode some words one way."""
        return decode(
            self.model,
            words,
            beam_width,
            self.trie if constrained else None,
            max_length=self.trie.max_length,
        )

    def example(self, word: str, beam_width: int) -> list[str]:
        """Lines that show the outputs for one word, both ways."""
        lines = []
        for constrained in (False, True):
            lines.append(f"{word}, {'constrained' if constrained else 'free'}:")
            for score, tokens in self.decode([word], beam_width, constrained)[0]:
                phonemes = " ".join(PHONEMES[token] for token in tokens)
                if tokens in self.trie:
                    note = ", ".join(dict.fromkeys(self.items.items(self.trie.key_id(tokens))))
                else:
                    note = "not in the catalog"
                lines.append(f"  {score:8.3f}  {phonemes:<32}  {note}")
        return lines
