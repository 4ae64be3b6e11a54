"""Four jobs that are more than relational: word count, embeddings, page rank, credit analysis."""

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.program import Program
from fedperf_engines.workloads.data import HIGHEST_NUMBER, read
from fedperf_engines.workloads.program_draft import (
    Draft,
    between,
    chance,
    count,
    descending,
    eighths,
    highest,
    mean,
    minus,
    pick,
    times,
    total,
    where,
)


def draw_word_count(rng: np.random.Generator, rows: int) -> Program:
    """Count the words of a text of `rows` words; keep frequent ones, in order or summed up."""
    draft = Draft()
    text = draft.add(read(pick(rng, ("prose", "chat")), rows))
    words = draft.add(ops.Tokenize("line"), text)
    if chance(rng, 0.5):
        first = pick(rng, "bdfgklmn") + pick(rng, "aeiou")
        words = draft.add(where("word", ">=", first), words)
    if chance(rng, 0.4):
        last = pick(rng, "prst") + pick(rng, "aeiou")
        words = draft.add(where("word", "<", last), words)
    counted = draft.add(ops.Aggregate(("word",), (count("times_seen"),)), words)
    if chance(rng, 0.8):
        least = where("times_seen", ">=", between(rng, 1, 6))
        counted = draft.add(least, counted)
    ending = pick(rng, ("sorted", "best", "summed", "plain"))
    if ending == "sorted":
        counted = draft.add(ops.Sort(descending("times_seen")), counted)
    elif ending == "best":
        counted = draft.add(ops.TopK(descending("times_seen"), between(rng, 5, 1000)), counted)
    elif ending == "summed":
        overall = ops.GlobalAggregate((count("words"), total("times_seen", "seen")))
        counted = draft.add(overall, counted)
    return draft.finish(counted)


def draw_embeddings(rng: np.random.Generator, rows: int) -> Program:
    """Embed the words of a text of `rows` words; cluster frequent ones, or list some."""
    draft = Draft()
    text = draft.add(read(pick(rng, ("prose", "chat")), rows))
    embed = ops.Embed("line", dimensions=between(rng, 2, 12), window=between(rng, 1, 4))
    words = draft.add(embed, text)
    if chance(rng, 0.5):
        first = pick(rng, "bdfgklmn") + pick(rng, "aeiou")
        words = draft.add(where("word", ">=", first), words)
    if chance(rng, 0.5):
        seen = draft.add(ops.Tokenize("line", "seen_word"), text)
        counted = draft.add(ops.Aggregate(("seen_word",), (count("times_seen"),)), seen)
        words = draft.add(ops.Join("word", "seen_word"), words, counted)
        least = where("times_seen", ">=", between(rng, 1, 6))
        words = draft.add(least, words)
    axes = embed.vector_names[: between(rng, 2, 6)]
    if chance(rng, 0.6):
        centers = draft.add(ops.KMeans(axes, between(rng, 2, 12), between(rng, 3, 12)), words)
        words = draft.add(ops.KMeansAssign(axes), words, centers)
        return draft.finish(draft.add(ops.Aggregate(("cluster",), (count("words"),)), words))
    return draft.finish(draft.add(ops.TopK(descending("e0"), between(rng, 5, 1000)), words))


def draw_pagerank(rng: np.random.Generator, rows: int) -> Program:
    """Rank the nodes of a graph of `rows` edges; sometimes repeated edges are removed first."""
    draft = Draft()
    edges = draft.add(read(pick(rng, ("web", "social")), rows))
    if chance(rng, 0.3):
        kept = where("source", "<", int(2**32 * rng.uniform(0.3, 1)))
        edges = draft.add(kept, edges)
    graph = edges
    if chance(rng, 0.3):
        graph = draft.add(ops.Distinct(("source", "target")), edges)
    damping = between(rng, 70, 95) / 100
    ranks = draft.add(ops.PageRank("source", "target", between(rng, 2, 20), damping), graph)
    if chance(rng, 0.4):
        followers = draft.add(ops.Aggregate(("target",), (count("followers"),)), edges)
        ranks = draft.add(ops.Join("node", "target"), ranks, followers)
        ranks = draft.add(where("followers", ">=", between(rng, 1, 5)), ranks)
    if chance(rng, 0.8):
        ranks = draft.add(ops.TopK(descending("rank"), between(rng, 5, 1000)), ranks)
    return draft.finish(ranks)


def draw_credit(rng: np.random.Generator, rows: int) -> Program:
    """Join applications with `rows` records of their histories, then cluster or score them."""
    draft = Draft()
    applicants = draft.add(read("applications", rows))
    if chance(rng, 0.5):
        asked = where("amount", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.8))
        applicants = draft.add(asked, applicants)
    records = draft.add(read("records", rows, "application_of", "balance", "days_late"))
    if chance(rng, 0.5):
        late = where("days_late", ">=", between(rng, 0, 60))
        records = draft.add(late, records)
    figures = (count("records"), mean("balance", "mean_balance"), highest("days_late", "worst"))
    history = draft.add(ops.Aggregate(("application_of",), figures), records)
    joined = draft.add(ops.Join("application", "application_of"), applicants, history)
    gap = ops.ComputedColumn("gap", "income", (minus("amount"), times(eighths(rng, 0.5, 2))))
    points = draft.add(
        ops.Project(("application", "region", "age", "mean_balance", "worst"), (gap,)), joined
    )
    if chance(rng, 0.65):
        return draft.finish(_clustered(draft, rng, points))
    return draft.finish(_scored(draft, rng, points))


def _clustered(draft: Draft, rng: np.random.Generator, points: int) -> int:
    columns = ("gap", "mean_balance", "worst", "age")[: between(rng, 2, 4)]
    centers = draft.add(ops.KMeans(columns, between(rng, 2, 8), between(rng, 3, 15)), points)
    labelled = draft.add(ops.KMeansAssign(columns), points, centers)
    keys = ("cluster", "region") if chance(rng, 0.4) else ("cluster",)
    figures = (count("applicants"), mean("gap", "mean_gap"))
    return draft.add(ops.Aggregate(keys, figures), labelled)


def _scored(draft: Draft, rng: np.random.Generator, points: int) -> int:
    features = ("gap", "worst", "age")[: between(rng, 1, 3)]
    model = draft.add(ops.LinearRegression(features, "mean_balance", eighths(rng, 0.5, 8)), points)
    scored = draft.add(ops.LinearPredict(features), points, model)
    if chance(rng, 0.5):
        return draft.add(ops.TopK(descending("prediction"), between(rng, 10, 1000)), scored)
    return draft.add(
        ops.Aggregate(("region",), (count("applicants"), mean("prediction", "score"))), scored
    )
