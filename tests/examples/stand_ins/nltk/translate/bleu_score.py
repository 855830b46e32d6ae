"""The share of words that are right, in the place of BLEU."""


class SmoothingFunction:
    """Its methods are only handed on."""

    method1 = None


def corpus_bleu(references, hypotheses, smoothing_function=None):
    """Return the share of words of the hypotheses that stand in a reference."""
    words = [(w, [x for r in refs for x in r]) for refs, hyp in zip(references, hypotheses) for w in hyp]
    return sum(w in known for w, known in words) / max(len(words), 1)
