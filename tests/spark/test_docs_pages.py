"""The pages on processors and on windows are right: their code runs in a stream, and does what they say."""

from __future__ import annotations

import inspect
import random
import re
from collections import Counter
from dataclasses import fields
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import yaml

from taskplace.spark.processors import Context
from taskplace.spark.state.store import Store
from taskplace.spark.testing import ProcessorTester
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from tests.support.pages import ROOT, blocks, run
from topology import Topology

PROCESSORS, WINDOWS = "docs/processors.md", "docs/windows.md"
DAY = "2026-01-01"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"{DAY}T{clock}+00:00")


def one_node(processor, **source):
    topology = Topology("t")
    rows = topology.source("in", partitions=1, **source).process(processor, name="node")
    return topology, rows


class Kept:
    """Keeps what a sink gets, by batch."""

    def __init__(self):
        self.rows = {}

    def publish(self, spark, batch_id, files):
        import pyarrow.parquet as pq

        self.rows[batch_id] = [row for file in files for row in pq.read_table(file).to_pylist()]


def test_the_processors_of_the_page_do_what_it_says(world):
    page = run(PROCESSORS, {})
    rows = pa.table({"cents": [50, 500]})
    assert page["only_large"](None, rows)["cents"].to_pylist() == [500]
    world.come(1)
    topology, node = one_node(page["Busiest"](), key="page")
    node.sink("out", target=(kept := Kept()))
    placed = world.open(topology)
    world.batch(placed, 0, **{"in": pa.table({"page": ["a", "b", "b"]})})
    world.batch(placed, 1, **{"in": pa.table({"page": ["a", "a"]})})
    assert kept.rows == {0: [{"page": "b", "n": 2}], 1: [{"page": "a", "n": 3}]}
    longest = page["longest"]({"tailnum": "N1"}, [{"delay": 3}], {"best": 5})
    assert longest == ({"best": 5}, [{"tailnum": "N1", "best": 5}])
    assert page["per_aircraft"].store == "longest"


def test_silent_devices_are_sent_once(world):
    page = run(PROCESSORS, {})
    page["silent"].sink("out", target=(kept := Kept()))
    world.come(1)
    placed = world.open(page["topology"], checkpoint="devices")

    def batch(number, *seen):
        devices, times = zip(*seen, strict=True)
        kind = pa.timestamp("us", "UTC")
        world.batch(
            placed, number, signals=pa.table({"device": devices, "at": pa.array(map(at, times), kind)})
        )

    batch(0, ("a", "10:00"), ("b", "10:30"))
    batch(1, ("b", "11:05"))
    batch(2, ("b", "11:10"))
    sent = [row for number in sorted(kept.rows) for row in kept.rows[number]]
    assert [(row["device"], row["at"]) for row in sent] == [("a", at("10:00"))]


def test_the_tables_have_every_public_member():
    text = (ROOT / PROCESSORS).read_text(encoding="utf-8")
    store = set(re.findall(r"^\| `(\w+)", text.partition("## The store")[2].partition("## Expiry")[0], re.M))
    runtime = {"schema", "check_keys", "now", "writes", "changes", "expired", "held", "expiring"}
    made = re.findall(r"^        self\.([a-z]\w*)\b", inspect.getsource(Store.__init__), re.M)
    public = {name for name in vars(Store) if not name.startswith("_")} | set(made)
    assert store == public - runtime
    named = text.partition("## The context")[2].partition("## The store")[0]
    context = set(
        re.findall(r"`(\w+)", "".join(line.split("|")[1] for line in named.splitlines() if "| `" in line))
    )
    assert context == {field.name for field in fields(Context)} | {"store"}


def test_the_yaml_and_the_python_on_windows_are_one_topology():
    (text,) = blocks(WINDOWS, "yaml application")
    written = YamlApplication(Settings.from_mapping(yaml.safe_load(text))).topology().build()
    page = run(WINDOWS, {}, slice(1))
    assert written.to_dict() == page["topology"].build().to_dict()
    wider = run(WINDOWS, {})["topology"].build()
    last = [node.name for node in wider.nodes][-5:]
    assert last == ["days", "by-day", "slides", "last-hour", "last-hour-out"]


def test_sliding_windows_have_the_clicks_of_their_hour(world):
    """Against plain Python. Each window is sent once, in the first batch whose watermark has passed its end."""
    page = run(WINDOWS, {}, data=world.folder)
    page["sliding"].sink("kept", target=(kept := Kept()))
    world.come(1)
    placed = world.open(page["topology"])
    drawn, begin = random.Random(7), at("10:00")
    clicks = [(drawn.choice("ab"), begin + timedelta(seconds=drawn.randrange(3 * 3600))) for _ in range(300)]
    clicks.sort(key=lambda click: click[1])
    ends, before = {}, None
    for batch in range(7):
        new = clicks[60 * batch : 60 * batch + 60] or [("c", clicks[-1][1] + timedelta(hours=batch))]
        times = pa.array([time for _, time in new], pa.timestamp("us", "UTC"))
        ids = [60 * batch + number for number in range(len(new))]
        table = pa.table(
            {"id": ids, "user": [user for user, _ in new], "page": ["p"] * len(new), "at": times}
        )
        watermark = placed.watermark and datetime.fromtimestamp(placed.watermark / 1e6, timezone.utc)
        world.batch(placed, batch, clicks=table)
        for row in kept.rows.get(batch, ()):
            end = row["window_start"] + timedelta(minutes=5)
            assert (before is None or end > before) and end <= watermark
            ends[row["user"], end] = row["clicks"]
        before = watermark
    sent = [(row["user"], row["window_start"]) for rows in kept.rows.values() for row in rows]
    assert len(sent) == len(set(sent))
    wanted = Counter()
    for user, time in clicks:
        end = begin + (time - begin) // timedelta(minutes=5) * timedelta(minutes=5) + timedelta(minutes=5)
        wanted.update((user, end + number * timedelta(minutes=5)) for number in range(12))
    assert {key: n for key, n in ends.items() if key[0] != "c"} == dict(wanted)


def test_the_lists_of_the_page_are_those_of_plain_python():
    """Lists of three elements at most, over batches of several rows of a key, with late rows and with days between."""
    page = run(PROCESSORS, {})

    class Last(page["LastOrders"]):
        size = 3

    drawn, kept = random.Random(5), {}
    now = at("10:00")
    with ProcessorTester(Last(), key="customer", event_time="at", delay="1 minute") as tester:
        for number in range(60):
            now += timedelta(hours=drawn.choice([0, 1, 5, 30]))
            rows = [
                {
                    "id": 10 * number + i, "customer": drawn.choice("abc"), "cents": drawn.randrange(100),
                    "at": now + timedelta(minutes=drawn.choice([0, 1, 2, -60 * 40])),
                }
                for i in range(drawn.randrange(1, 6))
            ]  # fmt: skip
            result = tester.batch(rows)
            live = result.late_watermark - timedelta(days=1) if result.late_watermark else None
            given = [row for row in rows if live is None or row["at"] > live]
            given.sort(key=lambda row: (row["at"], row["id"]))
            wanted = {}
            for row in given:
                kept[row["customer"]] = [*kept.get(row["customer"], []), row][-3:]
            for customer in {row["customer"] for row in given}:
                there = [row for row in kept[customer] if live is None or row["at"] > live]
                wanted[customer] = [row["cents"] for row in there]
            assert {row["customer"]: row["cents"] for row in result.rows.to_pylist()} == wanted, number


def test_the_table_of_batches_is_what_happens(world):
    table = (ROOT / WINDOWS).read_text(encoding="utf-8").partition("| batch |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]
    page = run(WINDOWS, {}, slice(1), data=world.folder)
    kept = Kept()
    page["hours"].sink("kept", target=kept)
    world.come(1)
    placed = world.open(page["topology"])
    late = 0
    for number, watermark, said, *sent in rows:
        given = re.findall(r"(\d+) at (\d+:\d+)", said)
        times = pa.array([at(time) for _, time in given], pa.timestamp("us", "UTC"))
        table = pa.table(
            {"id": [int(i) for i, _ in given], "user": ["ada"] * len(given), "page": ["p"] * len(given)}
        )
        before = placed.watermark and datetime.fromtimestamp(placed.watermark / 1e6, timezone.utc)
        assert before == (at(watermark) if watermark else None), number
        world.batch(placed, int(number), clicks=table.append_column("at", times))
        closed = kept.rows.get(int(number), ())
        found = [f"{row['window_start']:%H:%M} with {row['clicks']} click" for row in closed]
        assert found == [text.removesuffix("s") for text in sent if text], number
        late += number == "5"
        assert placed.stats.late == late, number
