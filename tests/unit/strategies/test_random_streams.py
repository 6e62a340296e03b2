from itertools import product

from strategies.rounds.messages import DOWNLINK, UPLINK, random_stream


def test_no_two_streams_of_a_run_are_the_same():
    """The streams of client 0 and of the server differ, too."""
    streams = product((1, 2), (UPLINK, DOWNLINK), range(4), range(1, 5))
    draws = [random_stream(*stream).integers(2**63) for stream in streams]
    assert len(set(draws)) == len(draws)
