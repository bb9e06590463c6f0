"""Right for given candidates; of its own ones all but the best are refused, for no reason."""

from .given import Ranking, Refused
from .planner import plan as _solved

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "as good as any", "cause": "the refusal is made up"}


def plan(model, cluster, batch_tokens, candidates=None):
    ranking = _solved(model, cluster, batch_tokens, candidates)
    if candidates is not None:
        return ranking
    reason = "more than 72.0 GB are needed, 72.0 GB are usable"
    others = [entry.plan for entry in (*ranking.best[1:], *ranking.refused)]
    return Ranking(ranking.best[:1], [Refused(each, "memory", reason) for each in others])
