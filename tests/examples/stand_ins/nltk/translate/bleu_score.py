"""The share of words that are right, in the place of BLEU."""


class SmoothingFunction:
    """Its methods are only handed on."""

    method1 = None


def corpus_bleu(references, hypotheses, smoothing_function=None):
    """Return the share of words of the hypotheses that stand in a reference."""
    words = [(w, sum(references[i], [])) for i, hypothesis in enumerate(hypotheses) for w in hypothesis]
    return sum(w in known for w, known in words) / max(len(words), 1)
