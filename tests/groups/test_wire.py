"""The bytes: what is written is read back, versions across each other, and no byte string does harm."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from taskplace.groups.membership import (
    Code,
    Mode,
    Offer,
    ProtocolError,
    Subscription,
    UnknownVersion,
    decode,
    encode,
)
from taskplace.groups.messages import (
    LIMIT,
    Ack,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Reader,
    Role,
    Sync,
    Writer,
    decode_body,
    inflate,
    pack,
    seal,
    unseal,
)
from taskplace.groups.metadata import Assignment, Probe
from topology import TopicPartition

names = st.text(max_size=8)
numbers = st.integers(0, 2**31 - 1)
large = st.integers(0, 2**53)
blobs = st.binary(max_size=300)
pairs = st.dictionaries(names, blobs, max_size=4).map(lambda found: tuple(sorted(found.items())))
codes = st.sampled_from(Code)

messages = st.one_of(
    st.builds(
        Join, names, names, large, names, large, numbers, numbers, st.sampled_from(Mode), names, numbers, large,
        st.lists(st.builds(Offer, names, numbers, blobs), max_size=4).map(tuple),
    ),
    st.builds(Sync, names, names, large, large, codes, names, pairs),
    st.builds(Heartbeat, names, names, large, large),
    st.builds(Leave, names, names, large),
    st.builds(
        Joined, names, names, large, large, codes, names, large, names, numbers, st.sampled_from(Role), names,
        names, pairs, blobs,
    ),
    st.builds(Ack, names, names, large, large, codes, names),
)  # fmt: skip

partitions = st.dictionaries(
    names, st.sets(st.integers(0, 2**31 - 1), max_size=9).map(lambda s: tuple(sorted(s)))
)
said = st.builds(
    Subscription, st.sets(names, max_size=9).map(lambda found: tuple(sorted(found))), st.sampled_from(["", "a.*"]),
    blobs, blobs, names, large, partitions, blobs, partitions,
)  # fmt: skip


@given(messages, st.booleans())
def test_messages_come_back(message: object, compress: bool) -> None:
    assert decode(encode(message, compress=compress)) == message  # type: ignore[arg-type]


@given(said, st.booleans())
def test_subscriptions_come_back(written: Subscription, compress: bool) -> None:
    assert Subscription.decode(written.encode(compress=compress)) == written


held = st.sets(st.tuples(names, numbers)).map(lambda found: tuple(sorted(TopicPartition(*p) for p in found)))


@given(st.builds(Assignment, held, numbers, held, st.booleans()))
def test_assignments_come_back(given_out: Assignment) -> None:
    assert Assignment.decode(given_out.encode()) == given_out
    assert given_out.encode()[0] == (1 if given_out.standby or given_out.followup else 0)


@given(said)
def test_an_old_reader_reads_what_is_written_for_it_and_a_new_reader_the_old(written: Subscription) -> None:
    old = Subscription(written.topics, written.pattern, written.metadata_hash, written.strategy)
    assert Subscription.decode(written.encode(version=0), known=0) == old
    assert Subscription.decode(old.encode(version=0)) == old
    middle = replace(written, standby={})
    assert Subscription.decode(written.encode(version=1), known=1) == middle


def test_a_newer_version_is_named_with_the_highest_known_one() -> None:
    future = Writer().uint(7).uint(7).take() + b"whatever version 7 may be"
    with pytest.raises(UnknownVersion, match="found version 7, expected one up to 2") as caught:
        Subscription.decode(future)
    assert (caught.value.version, caught.value.known) == (7, 2)
    with pytest.raises(UnknownVersion, match="found version 2, expected one up to 0"):
        Subscription.decode(Subscription(("t",)).encode(), known=0)
    frame = bytearray(encode(Leave("g", "m", 1)))
    frame[2] = 9
    with pytest.raises(UnknownVersion, match="frame: found version 9"):
        decode(bytes(frame))


@pytest.mark.parametrize("at", range(21))
def test_every_damaged_byte_of_a_frame_is_found(at: int) -> None:
    frame = bytearray(encode(Heartbeat("orders", "m1", 5, 3)))
    frame[at] ^= 0x10
    with pytest.raises(ProtocolError):
        decode(bytes(frame))


def test_numbers_have_one_spelling() -> None:
    for spelled in (b"\x80\x00", b"\xff" * 9 + b"\x7f", b"\x80"):
        with pytest.raises(ProtocolError):
            Reader(spelled, "number").uint()


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    bomb = zlib.compress(bytes(10**8), 9)
    with pytest.raises(ProtocolError, match="number up to"):
        inflate(Writer().uint(LIMIT + 1).take() + bomb, "body")
    with pytest.raises(ProtocolError, match="2000 bytes, compressed"):
        inflate(Writer().uint(2_000).take() + bomb, "body")  # says less than it holds
    with pytest.raises(ProtocolError, match="compressed"):
        inflate(Writer().uint(10**7).take() + zlib.compress(b"short"), "body")  # says more than it can hold
    assert inflate(pack(bytes(200))[1], "body") == bytes(200)


def test_counts_are_compared_with_what_is_left() -> None:
    with pytest.raises(ProtocolError, match="values"):
        Reader(Writer().uint(2**40).take() + b"abc", "list").many(lambda: b"")
    with pytest.raises(ProtocolError, match="numbers up to 10"):
        Reader(Writer().ascending([3, 12]).take(), "list").ascending(10)


def test_lists_are_sorted_and_have_nothing_twice() -> None:
    def pairs(*items: tuple[str, int]) -> bytes:
        w = Writer().uint(0).uint(0).uint(0)
        return w.many(items, lambda item: w.text(item[0]).ascending([item[1]])).take()

    assert Assignment.decode(pairs(("a", 1), ("b", 1))) == Assignment(
        (TopicPartition("a", 1), TopicPartition("b", 1)), 0
    )
    topics = Writer().uint(0).uint(0).flag(False)
    for what in (
        lambda: Assignment.decode(pairs(("b", 1), ("a", 1))),
        lambda: Assignment.decode(pairs(("a", 1), ("a", 2))),
        lambda: Subscription.decode(topics.many(["b", "a"], topics.text).take() + bytes(3)),
    ):
        with pytest.raises(ProtocolError, match="a sorted list without duplicates"):
            what()


def test_generations_end_far_from_where_numbers_end() -> None:
    said = Subscription(("t",), owned={"t": (0,)}, generation=2**53)
    assert Subscription.decode(said.encode()) == said
    with pytest.raises(ProtocolError, match="a number up to 9007199254740992"):
        Subscription.decode(replace(said, generation=2**53 + 1).encode())


@given(st.binary(max_size=400))
def test_frames_come_back(body: bytes) -> None:
    assert unseal(seal(3, body)) == (3, body)


# ------------------------------------------------------------------------------------------------------- fuzz


def _samples() -> list[tuple[Callable[[bytes], object], bytes]]:
    """Return decoders with something valid for each; bodies as well, since a checksum keeps most damage out."""
    joined = Joined(
        "g", "m", 9, 2, Code.NONE, "", 3, "sticky", 1, Role.MEMBER, "m", "a", (("a", b"x"), ("m", b"y" * 200))
    )
    join = Join(
        "g", "m", 4, "", 1, 9_000, 9_000, Mode.EVERY, "consumer", 1, 0, (Offer("a", 1, b"z"), Offer("b"))
    )
    sync = Sync("g", "m", 5, 3, Code.NONE, "", (("a", b"1"), ("b", b"2")))
    wide = Subscription(
        tuple(f"topic-{k}" for k in range(40)),
        "",
        b"h" * 16,
        b"{}",
        "r",
        4,
        {"topic-1": (1, 2, 9)},
        b"s" * 16,
    )
    bodies: list[tuple[Callable[[bytes], object], bytes]] = []
    for message in (
        joined,
        join,
        sync,
        Heartbeat("g", "m", 1, 1),
        Leave("g", "m", 1),
        Ack("g", "m", 1, 1, Code.NONE),
    ):
        kind, body = unseal(encode(message))
        bodies.append((lambda data, kind=kind: decode_body(kind, data), body))
        bodies.append((lambda data, kind=kind: decode(seal(kind, data)), body))
    return [
        *bodies,
        (decode, encode(joined)),
        (decode, encode(joined, compress=False)),
        (Subscription.decode, wide.encode()),
        (Subscription.decode, wide.encode(compress=False)),
        (Subscription.decode, Subscription(pattern="a.*").encode(version=0)),
        (Subscription.decode, Subscription(pattern="(ord|us)[a-z]{2,9}(s|ers)?").encode(compress=False)),
        (
            Assignment.decode,
            Assignment((TopicPartition("t", 1),), 2, (TopicPartition("u", 1),), True).encode(),
        ),
        (Assignment.decode, Assignment((TopicPartition("t", 1), TopicPartition("t", 9))).encode()),
        (Assignment.decode, Probe(1).encode()),
    ]


def _mutated(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0:
                out[at:at] = chance.randbytes(chance.randint(1, 4))
            case 1:
                del out[at : at + chance.randint(1, 6)]
            case 2 if at < len(out):
                out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 3 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 4:
                out[at : at + 2] = Writer().uint(chance.choice((2**31, 2**40, 2**63, 2**64 - 1))).take()
            case _:
                out[at:] = out[: chance.randrange(len(out) + 1)]
    return bytes(out)


def _fuzz(seed: int, count: int) -> tuple[int, int]:
    print(f"seed {seed}")
    chance = random.Random(seed)
    samples = _samples()
    refused = read = 0
    for k in range(count):
        decoder, valid = samples[k % len(samples)]
        data = chance.randbytes(chance.randrange(80)) if k % 5 == 0 else _mutated(chance, valid)
        try:
            decoder(data)
            read += 1
        except ProtocolError:
            refused += 1
    return refused, read


def test_100000_random_and_mutated_byte_strings_raise_protocol_errors_only() -> None:
    refused, read = _fuzz(seed=794, count=100_000)
    assert refused + read == 100_000
    assert refused > 50_000 and read > 1_000  # both ways were taken


def test_nothing_allocates_wildly() -> None:
    tracemalloc.start()
    try:
        _fuzz(seed=1, count=5_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20, f"{peak} bytes at once, for inputs of some hundred bytes"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_more(seed: int) -> None:
    refused, read = _fuzz(seed, 100_000)
    assert refused + read == 100_000


@settings(max_examples=300)
@given(st.sampled_from(range(len(_samples()))), st.binary(max_size=200))
def test_what_hypothesis_finds_raises_protocol_errors_only(which: int, data: bytes) -> None:
    decoder, _ = _samples()[which]
    try:
        decoder(data)
    except ProtocolError as error:
        assert str(error)
