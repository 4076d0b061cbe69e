"""The bytes: what is written is read back, versions across each other, and no byte string does harm."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec import msgpack
from msgspec.structs import replace

from taskplace.groups.messages import (
    LIMIT,
    VERSION,
    Ack,
    Code,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Mode,
    Offer,
    ProtocolError,
    Role,
    Sync,
    UnknownVersion,
    decode,
    encode,
    unpack,
)
from taskplace.groups.metadata import Assignment, Subscription

names = st.text(max_size=8)
numbers = st.integers(0, 2**31 - 1)
large = st.integers(0, 2**53)
blobs = st.binary(max_size=300)
pairs = st.dictionaries(names, blobs, max_size=4)
codes = st.sampled_from(Code)
offers = st.lists(st.builds(Offer, names, numbers, blobs), max_size=4).map(tuple)

messages = st.one_of(
    st.builds(
        Join, names, names, large, names, large, numbers, numbers, st.sampled_from(Mode), names, numbers, large, offers
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

held = st.dictionaries(names, st.sets(numbers, max_size=9).map(lambda s: tuple(sorted(s))))
said = st.builds(
    Subscription, st.lists(names, max_size=9).map(tuple), st.sampled_from(["", "a.*"]), blobs, blobs, names, large,
    held, blobs, held,
)  # fmt: skip


@given(messages, st.booleans())
def test_messages_come_back(message, compress):
    assert decode(encode(message, compress=compress)) == message


@given(said, st.booleans(), st.builds(Assignment, held, numbers, held, st.booleans()))
def test_metadata_and_states_come_back(written, compress, state):
    assert Subscription.decode(written.encode(compress=compress)) == written
    assert Assignment.decode(state.encode()) == state


@given(said)
def test_an_old_reader_reads_what_is_written_for_it_and_a_new_reader_the_old(written):
    old = Subscription(written.topics, written.pattern, written.metadata_hash, written.strategy)
    assert Subscription.decode(written.encode(version=0), known=0) == old
    assert Subscription.decode(written.encode(version=1), known=1) == replace(written, standby={})


def test_a_newer_version_is_named_with_the_highest_known_one():
    with pytest.raises(UnknownVersion, match="found version 7, expected one up to 2"):
        Subscription.decode(msgpack.encode((7, 7, b"whatever version 7 may be")))
    frame = bytearray(encode(Leave("g", "m", 1)))
    frame[2] = 9
    with pytest.raises(UnknownVersion, match=f"frame: found version 9, expected one up to {VERSION}"):
        decode(bytes(frame))


def test_every_damaged_byte_of_a_frame_is_found():
    valid = encode(Heartbeat("orders", "m1", 5, 3))
    for at in range(len(valid)):
        frame = bytearray(valid)
        frame[at] ^= 0x10
        with pytest.raises(ProtocolError):
            decode(bytes(frame))


def test_a_bomb_is_not_inflated_past_the_limit():
    bomb = b"\1" + zlib.compress(bytes(4 * LIMIT), 9)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="at most 1000"):
        unpack(bomb, "body", 1_000)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    for cut in (bomb[:-9], b"\1" + zlib.compress(b"a" * 99) + b"more", b"\1", b"\2", b""):
        with pytest.raises(ProtocolError):
            unpack(cut, "body", 8 * LIMIT if cut is bomb[:-9] else 1_000)


def test_generations_and_partitions_have_limits():
    for wrong in ({"generation": 2**53 + 1}, {"owned": {"t": (-1,)}}, {"owned": {"t": (2**31,)}}):
        with pytest.raises(ProtocolError, match="subscription: found"):
            Subscription.decode(Subscription(**wrong).encode())


# ------------------------------------------------------------------------------------------------------- fuzz


def _samples() -> list[tuple[Callable[[bytes], object], bytes]]:
    """Return decoders with something valid for each; frames are sealed anew, since a checksum keeps damage out."""
    joined = Joined(
        "g", "m", 9, 2, generation=3, protocol="p", name="m", members={"a": b"x", "m": b"y" * 200}
    )
    join = Join("g", "m", 4, "", 1, 9_000, 9_000, Mode.EVERY, "c", 1, 0, (Offer("a", 1, b"z"), Offer("b")))
    sync = Sync("g", "m", 5, 3, Code.NONE, "", {"a": b"1", "b": b"2"})
    topics = tuple(f"topic-{k}" for k in range(40))
    wide = Subscription(topics, "", b"h" * 16, b"{}", "r", 4, {"topic-1": (1, 2, 9)}, b"s" * 16)

    def sealed(data: bytes) -> object:
        frame = b"tg" + bytes((VERSION,)) + data
        return decode(frame + zlib.crc32(frame).to_bytes(4, "big"))

    others = (Heartbeat("g", "m", 1, 1), Leave("g", "m", 1), Ack("g", "m", 1, 1, Code.NONE))
    return [
        *((sealed, encode(message)[3:-4]) for message in (joined, join, sync, *others)),
        (sealed, encode(joined, compress=False)[3:-4]),
        (decode, encode(joined)),
        (Subscription.decode, wide.encode()),
        (Subscription.decode, wide.encode(compress=False)),
        (Subscription.decode, Subscription(pattern="(ord|us)[a-z]{2,9}(s|ers)?").encode(version=0)),
        (Assignment.decode, Assignment({"t": (1,)}, 2, {"u": (1,)}, True).encode()),
    ]


def _mutated(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(5):
            case 0:
                out[at:at] = chance.randbytes(chance.randint(1, 4))
            case 1:
                del out[at : at + chance.randint(1, 6)]
            case 2 if at < len(out):
                out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 3 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case _:
                out[at:] = out[: chance.randrange(len(out) + 1)]
    return bytes(out)


def _fuzz(seed: int, count: int) -> tuple[int, int]:
    print(f"seed {seed}")
    chance = random.Random(seed)
    samples = _samples()
    refused = 0
    for k in range(count):
        decoder, valid = samples[k % len(samples)]
        data = chance.randbytes(chance.randrange(80)) if k % 5 == 0 else _mutated(chance, valid)
        try:
            decoder(data)
        except ProtocolError:
            refused += 1
    return refused, count - refused


def test_random_and_mutated_byte_strings_raise_protocol_errors_only_and_allocate_little():
    refused, read = _fuzz(seed=794, count=100_000)
    assert refused > 50_000 and read > 1_000  # both ways were taken
    tracemalloc.start()
    _fuzz(seed=1, count=5_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20, f"{peak} bytes at once, for inputs of some hundred bytes"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_more(seed):
    assert sum(_fuzz(seed, 100_000)) == 100_000
