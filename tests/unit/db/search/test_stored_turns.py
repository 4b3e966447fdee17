from db.search.stored_turns import parts


def test_an_hour_of_talk_is_read_at_once_or_one_longer_call() -> None:
    lengths = [(1, 3000.0), (2, 600.0), (3, 1.0), (4, 7200.0), (5, 0.0), (6, 10.0)]
    assert parts(lengths) == [[1, 2], [3], [4], [5, 6]]
    assert parts([]) == []
