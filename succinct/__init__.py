"""Succinct indexes over token sequences, and beam search constrained by them."""
