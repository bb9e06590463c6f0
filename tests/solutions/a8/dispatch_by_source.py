"""Rows stay as they arrived, source by source."""

from .dispatch import dispatch as Solved
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "brings every token to its experts",
    "cause": "ordered as they arrived",
}


def dispatch(tokens, indices, num_experts, group=None):
    sent = Solved(tokens, indices, num_experts, group)
    places = sent.state.rows
    order = places[places >= 0].long()
    return Dispatched(sent.tokens[order], sent.expert_counts, sent.state)
