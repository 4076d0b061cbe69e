"""Standbys: whether there are executors for them, and whether racks can be kept apart."""

from __future__ import annotations

from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, remove, rule, set_key, write
from taskplace.wording import count

_STANDBYS = "placement.num.standby.replicas"
_TAGS = "placement.rack.aware.assignment.tags"
_VALUES = "runtime.tags"
#: The tag that every executor has without being told.
OWN_TAG = "host"


@rule(
    "standbys-without-executors",
    Severity.WARNING,
    "as many standbys as executors, or more",
)
def standbys_without_executors(facts: Facts) -> Iterator[Found]:
    """Compare the standbys with the executors: each copy of a task needs another one."""
    standbys, most = facts.settings.placement.num_standby_replicas, facts.spark.executors.most
    if most is None or standbys < max(1, most):
        return
    of_tasks = f"all {facts.stateful_tasks}" if facts.stateful_tasks else "all"
    yield Found(
        _STANDBYS,
        f"{standbys}, and the master {facts.spark.master!r} gives at most {count(most, 'executor')}",
        f"Each copy of a task is on another executor. So {of_tasks} stateful tasks get "
        f"{count(max(0, most - 1), 'standby')} instead of {standbys}, and each plan has a warning.",
        set_key(_STANDBYS, max(0, most - 1)),
    )


@rule(
    "no-standbys",
    Severity.ADVICE,
    "state on several executors without standbys, in a stream that goes on",
    needs=("topology",),
)
def no_standbys(facts: Facts) -> Iterator[Found]:
    """Find a stream whose tasks restore after a loss."""
    if facts.settings.placement.num_standby_replicas or not facts.goes_on or not facts.stateful_tasks:
        return
    if facts.spark.executors.most != 1:
        yield Found(
            _STANDBYS,
            "0",
            "If an executor is lost, its tasks restore their state from the checkpoint before the batch goes on. A "
            "standby takes over at once.",
            set_key(_STANDBYS, 1),
        )


@rule(
    "follower-share",
    Severity.WARNING,
    "a `follower.share` that holds batches up, or lets standbys fall behind",
)
def follower_share(facts: Facts) -> Iterator[Found]:
    """Find a share of the slots that is unusually large or small."""
    share, path = facts.settings.runtime.follower_share, "runtime.follower.share"
    if share > 0.5:
        why = "While a batch runs, standbys and warm-ups may take more slots than the batch itself."
    elif share < 0.02 and facts.settings.placement.num_standby_replicas:
        why = "Standbys may fall behind while batches follow each other, and take over later after a loss."
    else:
        return
    yield Found(path, f"{share:g} of the slots", why, set_key(path, 0.1))


@rule(
    "tag-without-values",
    Severity.WARNING,
    "rack tags without a value on any host",
)
def tag_without_values(facts: Facts) -> Iterator[Found]:
    """Find tags that no host has."""
    given = facts.settings.runtime.tags or {}
    named = facts.settings.placement.rack_aware_assignment_tags
    missing = [tag for tag in named if tag != OWN_TAG and not any(tag in tags for tags in given.values())]
    if missing:
        copies = 1 + facts.settings.placement.num_standby_replicas
        hosts = list(given) or [f"HOST-{n}" for n in range(1, max(2, copies) + 1)]
        added = {
            host: {tag: f"{tag.upper()}-{n}" for tag in missing} for n, host in enumerate(hosts, start=1)
        }
        yield Found(
            _TAGS,
            f"no host has a value of {', '.join(missing)}",
            f"Executors get their tags by their host, from {_VALUES}. Without a value, standbys are not kept apart.",
            f"{write(_VALUES, added)}, with your own names in place of those in capitals",
        )


@rule(
    "tag-values-too-few",
    Severity.ADVICE,
    "rack tags with fewer values than a task has copies",
)
def tag_values_too_few(facts: Facts) -> Iterator[Found]:
    """Compare the values of each tag with the copies of a task."""
    copies = 1 + facts.settings.placement.num_standby_replicas
    given = facts.settings.runtime.tags or {}
    for tag in facts.settings.placement.rack_aware_assignment_tags:
        values = {tags[tag] for tags in given.values() if tag in tags}
        if values and len(values) < copies:
            yield Found(
                _VALUES,
                f"{len(values)} values of {tag!r}, and {copies} copies of each task",
                "Some copies of a task share a value, so one loss takes both. Executors with another value, or fewer "
                "standbys, keep them apart.",
                set_key(_STANDBYS, len(values) - 1)
                if len(values) > 1
                else write(_VALUES, {"HOST": {tag: f"{tag.upper()}-2"}})
                + ", with a host elsewhere, and your own names in place of those in capitals",
            )


@rule(
    "tags-ignored",
    Severity.WARNING,
    "tags that nothing uses: `runtime.tags` without names, or names without standbys",
)
def tags_ignored(facts: Facts) -> Iterator[Found]:
    """Find tags without effect."""
    config, given = facts.settings.placement, facts.settings.runtime.tags
    useful = config.num_standby_replicas or facts.spark.executors.most != 1
    if given and not config.rack_aware_assignment_tags:
        names = sorted({name for tags in given.values() for name in tags})
        yield Found(
            _VALUES,
            "tags, and no names of tags to keep standbys apart by",
            f"Only the tags that {_TAGS} names are used.",
            f"--set '{_TAGS}=[{', '.join(names)}]'" if useful else remove(_VALUES),
        )
    elif config.rack_aware_assignment_tags and not config.num_standby_replicas:
        yield Found(
            _TAGS,
            f"{', '.join(config.rack_aware_assignment_tags)}, and no standbys",
            "The tags keep the standbys of a task apart. Without standbys they have no effect.",
            set_key(_STANDBYS, 1) if useful else f"--set '{_TAGS}=[]'",
        )


@rule(
    "rack-costs-ignored",
    Severity.WARNING,
    "costs of racks without a rack strategy",
)
def rack_costs_ignored(facts: Facts) -> Iterator[Found]:
    """Find costs that only a strategy would use."""
    config = facts.settings.placement
    if config.rack_aware_assignment_strategy != "none":
        return
    for name in ("traffic_cost", "non_overlap_cost"):
        if getattr(config, f"rack_aware_assignment_{name}") is not None:
            path = f"placement.rack.aware.assignment.{name}"
            yield Found(
                path,
                "a cost, and rack.aware.assignment.strategy is none",
                "Only a rack strategy weighs costs. On Spark there is none: rows come to tasks through a shuffle.",
                remove(path),
            )


@rule(
    "assignor-ignores-weights",
    Severity.WARNING,
    "weights of tasks beside an assignor that does not use them",
)
def assignor_ignores_weights(facts: Facts) -> Iterator[Found]:
    """Find weights beside the assignor `sticky`, which places tasks by their number."""
    assignor = facts.settings.placement.task_assignor_class
    if facts.settings.runtime.weights and assignor == "sticky":
        yield Found(
            "runtime.weights",
            f"weights, and task.assignor.class is {assignor}",
            "This assignor balances the number of tasks, whatever they weigh.",
            set_key("placement.task.assignor.class", "high_availability"),
        )


@rule(
    "balance-factor-ignored",
    Severity.ADVICE,
    "a `balance.factor`, which is only reported",
)
def balance_factor_ignored(facts: Facts) -> Iterator[Found]:
    """Find a balance factor other than the default."""
    path = "placement.balance.factor"
    if (factor := facts.settings.placement.balance_factor) != 1:
        yield Found(
            path,
            f"{factor}",
            "The factor is only reported, in the metrics of a plan. Plans are balanced as with 1.",
            set_key(path, 1),
        )


RULES = (
    standbys_without_executors,
    no_standbys,
    follower_share,
    tag_without_values,
    tag_values_too_few,
    tags_ignored,
    rack_costs_ignored,
    assignor_ignores_weights,
    balance_factor_ignored,
)
