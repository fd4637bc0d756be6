"""The spelling-to-phonemes model of the package ``g2p-en``, as a batched decoder in numpy.

A GRU reads the letters of a word; a second GRU starts from where the first ended and emits one
phoneme a step, until it emits ``</s>``. The package is found but not imported: importing it would
download data.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_UNKNOWN_LETTER, _END_OF_WORD, _FIRST_LETTER = 1, 2, 3

# Vowels carry a stress digit: 0 none, 1 primary, 2 secondary. The model's table is the sorted list
# of all phonemes behind four special tokens, and has one vowel without its digit.
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_CONSONANTS = (
    "B",
    "CH",
    "D",
    "DH",
    "F",
    "G",
    "HH",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
)
PHONEMES: tuple[str, ...] = (
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    *sorted([v + stress for v in _VOWELS for stress in "012"] + [*_CONSONANTS, "UW"]),
)
START = PHONEMES.index("<s>")
END = PHONEMES.index("</s>")


def find_data_file(module: str, distribution: str, relative: str) -> Path:
    """Return the path of a data file of an installed package, without importing the package.

    Parameters
    ----------
    module
        Name of the top-level import package.
    distribution
        Name to give to pip, for the message.
    relative
        Path of the file inside the package.

    Raises
    ------
    ModuleNotFoundError
        If the package or the file is missing; the message says how to install it.
    """
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / relative
        if path.is_file():
            return path
    raise ModuleNotFoundError(
        f"the demo needs {relative} of the package {distribution}, which is not installed; "
        'install it with: pip install "succinct-tries[demo]"'
    )


class PhonemeDecoder:
    """The model, one call a step for a whole batch of hypotheses.

    Parameters
    ----------
    path
        The ``.npz`` file with the weights; by default the one in the installed package ``g2p-en``.

    Notes
    -----
    Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder for statistical
    machine translation", doi:10.3115/v1/D14-1179, describes the unit.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            path = find_data_file("g2p_en", "g2p-en", "checkpoint20.npz")
        with np.load(path, allow_pickle=False) as weights:
            self._weights: dict[str, Floats] = {
                name: weights[name].astype(np.float32) for name in weights.files
            }
        rows = len(self._weights["dec_emb"])
        if rows != len(PHONEMES):
            raise ValueError(f"{path}: expected embeddings of {len(PHONEMES)} tokens, got {rows}")

    @property
    def vocab_size(self) -> int:
        """Number of phoneme tokens, the special ones included."""
        return len(PHONEMES)

    def encode(self, words: Sequence[str]) -> Floats:
        """Read the spelling of each word; return the hidden states, float32 ``[words, H]``."""
        lengths = np.array([len(word) + 1 for word in words], dtype=np.int64)
        letters = np.full((len(words), int(lengths.max(initial=1))), _END_OF_WORD, dtype=np.int64)
        for row, word in enumerate(words):
            for column, letter in enumerate(word):
                place = _LETTERS.find(letter)
                letters[row, column] = _UNKNOWN_LETTER if place < 0 else _FIRST_LETTER + place
        hidden = np.zeros((len(words), self._weights["enc_w_hh"].shape[1]), dtype=np.float32)
        for step in range(letters.shape[1]):
            stepped = self._gru("enc", letters[:, step], hidden)
            hidden = np.where((step < lengths)[:, None], stepped, hidden)
        return hidden

    def step(self, hidden: Floats, tokens: Ints) -> tuple[Floats, Floats]:
        """Feed the last token of every hypothesis and score the next one.

        Parameters
        ----------
        hidden
            Hidden states, float32 ``[rows, H]``.
        tokens
            Last token of each row (`START` at first), integers ``[rows]``.

        Returns
        -------
        logprobs
            Log-probabilities over the whole vocabulary, float32 ``[rows, vocab_size]``.
        hidden
            The next hidden states, float32 ``[rows, H]``.
        """
        hidden = self._gru("dec", tokens, hidden)
        logits = hidden @ self._weights["fc_w"].T + self._weights["fc_b"]
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits, hidden

    def _gru(self, part: str, tokens: Ints, hidden: Floats) -> Floats:
        w = self._weights
        # The embeddings of all tokens fit in a small table, so the input half of the unit is a
        # look-up in the projected table.
        projected = w[f"{part}_emb"] @ w[f"{part}_w_ih"].T + w[f"{part}_b_ih"]
        from_input = np.split(projected[tokens], 3, axis=1)
        from_hidden = np.split(hidden @ w[f"{part}_w_hh"].T + w[f"{part}_b_hh"], 3, axis=1)
        reset = _sigmoid(from_input[0] + from_hidden[0])
        update = _sigmoid(from_input[1] + from_hidden[1])
        proposed: Floats = np.tanh(from_input[2] + reset * from_hidden[2])
        return (1 - update) * proposed + update * hidden


def _sigmoid(x: Floats) -> Floats:
    # By way of tanh, which cannot overflow.
    result: Floats = 0.5 + 0.5 * np.tanh(0.5 * x)
    return result
