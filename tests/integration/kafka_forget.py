"""Forget, with the stock client, on a service with a broker."""
import sys
import uuid

from conftest import ROOT
from rpc_stubs import stubs

sys.path.insert(0, str(ROOT / "tests" / "crash"))
import crash

pb = stubs()


def test_a_forgotten_node_is_gone_and_compacted_topics_are_told(brokers, tmp_path):
    import grpc
    path, model = crash.make_feed(tmp_path, 6000, 31)
    messages, _ = crash.messages_of(path, pb, 400)
    gone = next(pb.event.EdgeEvent.FromString(m).src for m in messages if m[0] != 0xff)
    source = f"forget-{uuid.uuid4().hex[:8]}"
    crash.make_topics(brokers, [source])
    run = crash.Run(tmp_path, brokers, source, model, "forgetting",
                    ("--set", "predict.forget_tombstones=on"))
    crash.publish(brokers, source, messages, 0)
    life = crash.Life(run)
    try:
        life.wait_drained(brokers, source)
        with grpc.insecure_channel(life.rpc) as channel:
            stub = pb.service_grpc.LinkPredictionStub(channel)
            window = stub.GetWindow(pb.service.GetWindowRequest(node=gone))
            peer = window.interactions[0].peer
            answer = stub.Forget(pb.service.ForgetRequest(node=gone))
            assert answer.found and answer.events > 0
            assert not stub.GetWindow(pb.service.GetWindowRequest(node=gone)).interactions
            left = stub.GetWindow(pb.service.GetWindowRequest(node=peer))
            assert gone not in [i.peer for i in left.interactions]
            assert not stub.Forget(pb.service.ForgetRequest(node=gone)).found
        life.wait_drained(brokers, source)
        life.kill()
        life = crash.Life(run)
        life.wait_drained(brokers, source)
        assert run.windows(life, pb, [gone]) != {gone: b""}
        with grpc.insecure_channel(life.rpc) as channel:
            stub = pb.service_grpc.LinkPredictionStub(channel)
            assert not stub.GetWindow(pb.service.GetWindowRequest(node=gone)).interactions
        life.stop()
    finally:
        if life.process.poll() is None:
            life.process.kill()
    for kind in ("scores", "predictions", "alerts"):
        records = crash.read_topic(brokers, run.outputs[kind])
        assert [(key, value) for _, key, value, _ in records[-1:]] == [(gone.encode(), None)]
