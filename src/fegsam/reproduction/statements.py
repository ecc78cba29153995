"""The statements of the paper that are checked: the one table of their names and places.

Numbers are those that LaTeX gives to the paper's source: theorems, lemmas and propositions count
within their sections, corollaries within their theorems, and the sections of the appendix have
letters.
"""

from __future__ import annotations

from fegsam.report.paper import Statement

_IN_PAPER_MD = {
    "3.1": "Section 3.1: one agent",
    "3.3": "Section 3.3: the main result",
    "5": "Section 5: on-policy TD, Algorithm 2",
    "6": "Section 6.1: off-policy tabular TD, Algorithm 3",
    "6.1": "Section 6.1: off-policy tabular TD, Algorithm 3",
    "6.2": "Section 6.2: Q-learning, Algorithm 4",
    "7": "Section 7: off-policy with function approximation",
    "8.1": "Section 8: the proof",
    "A": "Appendix A: the lower bound",
    "B.2": "Appendix B: the main result with its constants",
    "B.5": "Appendix B: the main result with its constants",
}
"""The heading of docs/paper.md that goes through each section."""


def _statement(name: str, section: str, title: str, says: str) -> Statement:
    return Statement(name, section, title, says, _IN_PAPER_MD[section])


_MAIN = "Main result"
_ON_POLICY = "On-policy Federated Reinforcement Learning"
_TABULAR = "Off-Policy Federated Reinforcement Learning with Tabular Representation"
_FEATURES = "Off-policy Federated Reinforcement Learning with Function Approximation"

STATEMENTS = (
    _statement(
        "Section 3.1",
        "3.1",
        "Single node",
        "With a constant step size the error of one agent falls geometrically to a floor "
        "proportional to α. Stochastic gradient descent is a special case.",
    ),
    _statement(
        "Theorem 3.1",
        "3.3",
        _MAIN,
        "The expected squared error of Algorithm 1 at the random output time is at most the sum "
        "of five terms: one that falls geometrically in T, and four of the orders ατ²/N, "
        "(K − 1)α²τ, (K − 1)²εα²τ and α³τ². ε says how much the agents' fixed points differ.",
    ),
    _statement(
        "Corollary 3.1.1",
        "3.3",
        _MAIN,
        "With α = 8 log(NT)/(φ₂T) the error is of order 1/(NT) up to logarithms. If agents agree, "
        "K = T/N, so they communicate N times; if they differ, K = √T/N.",
    ),
    _statement(
        "Section 5",
        "5",
        _ON_POLICY,
        "On-policy TD with linear features, Algorithm 2. The server is not exposed to the states, "
        "actions and rewards of an agent.",
    ),
    _statement(
        "Theorem 5.1",
        "5",
        _ON_POLICY,
        "The bound of Theorem 3.1 without the fourth term, for on-policy TD with linear features.",
    ),
    _statement(
        "Section 6",
        "6",
        _TABULAR,
        "Off-policy tabular TD and Q-learning, Algorithms 3 and 4. Agents keep both their data "
        "and their behaviour policies private.",
    ),
    _statement(
        "Theorem 6.1",
        "6.1",
        "Federated Off-Policy TD-learning",
        "The bound for off-policy tabular TD, with the orders of its constants and of the number "
        "of steps in μ_min, |S| and 1/(1 − γ).",
    ),
    _statement(
        "Theorem 6.2",
        "6.2",
        "Federated Q-learning",
        "The bound for Q-learning, with the orders of its constants and of the number of steps in "
        "μ_min, |S| and 1/(1 − γ).",
    ),
    _statement(
        "Theorem 7.1",
        "7",
        _FEATURES,
        "For n large enough, the bound of Theorem 3.1 for off-policy TD with linear features, "
        "whose agents have different fixed points.",
    ),
    _statement(
        "Section 8.1",
        "8.1",
        "Illustrative Example and the Challenge",
        "A scalar example with averaging at every step. The noise of a Markov chain is correlated "
        "with the parameters, so a speed-up is harder to prove than with independent noise.",
    ),
    _statement(
        "Appendix A",
        "A",
        "Lower Bound on the Convergence of General Stochastic Approximation",
        "The squared error of a scalar example in closed form: a geometric fall to the floor "
        "ασ²/(2 − α).",
    ),
    _statement(
        "Proposition B.4",
        "B.2",
        "Proof of Theorem B.1",
        "The weighted consensus error is bounded if the step size meets three conditions "
        "(eq. alpha_const_2). The first of them bounds α(K − 1) by a constant.",
    ),
    _statement(
        "Lemma B.8",
        "B.5",
        "Proof of Proposition B.4",
        "The agents' mean squared distance from their average, k steps after they last averaged, "
        "is at most of order α²k, plus a term in α²k(k − 1)ε if they differ.",
    ),
)
"""In the order of the paper."""

ELSEWHERE = ("Exact moments", "Small-step law", "Convexity (Jensen)", "None: ")
"""How the sources of checks begin that no statement of the paper is the source of."""
