"""The crash test, short: `make crash KILLS=300` is the long one."""
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "crash"))


def test_ten_kills_lose_nothing_and_repeat_nothing(brokers, tmp_path):
    import crash
    report = crash.crash(tmp_path, brokers, kills=10, events=2000, seed=11)
    print(report)
    assert report["records"]["alerts"] > 0


def test_a_broker_that_dies_loses_nothing_either(own_broker, tmp_path):
    import crash
    report = crash.crash(tmp_path / "crash", own_broker.address, kills=5, events=1500, seed=12,
                         broker=own_broker, broker_kills=2, broker_stop=10)
    print(report)
    assert report["broker_kills"] == 2
