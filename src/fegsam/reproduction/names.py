"""The paper and its algorithms, by name."""

from __future__ import annotations

from urllib.parse import urlencode

ALGORITHMS = {
    1: "Linear stochastic approximation",
    2: "On-policy TD",
    3: "Off-policy tabular TD",
    4: "Q-learning",
    5: "Off-policy linear TD",
}
"""The algorithms by their numbers in the paper."""
PAPER_TITLE = (
    "Federated Stochastic Approximation under Markov Noise and Heterogeneity: Applications in "
    "Reinforcement Learning"
)
PAPER_AUTHORS = "Sajad Khodadadian, Pranay Sharma, Gauri Joshi and Siva Theja Maguluri"
PAPER_LINK = f"https://arxiv.org/search/?{urlencode({'query': PAPER_TITLE, 'searchtype': 'title'})}"
"""A search for the title, which finds every version."""


def algorithm_of(where: str) -> str:
    """The algorithm with which the name of a check begins; empty if it is about none of them.

    >>> algorithm_of("Q-learning, Garnet"), algorithm_of("scalar example")
    ('Q-learning', '')
    """
    name = where.partition(", ")[0]
    return name if name in ALGORITHMS.values() else ""
