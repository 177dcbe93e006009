"""The test broker itself: what the other Kafka tests rest on."""
import uuid

from confluent_kafka import Producer


def transactional(brokers):
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    return producer


def test_keeps_committed_and_hides_aborted_messages(brokers, topic, consume):
    name = topic("transactions")
    producer = transactional(brokers)
    for value, end in ((b"kept", producer.commit_transaction),
                       (b"aborted", producer.abort_transaction),
                       (b"kept too", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        end(30)
    assert [m.value() for m in consume(name, seconds=3)] == [b"kept", b"kept too"]
    assert len(consume(name, count=3, isolation="read_uncommitted")) == 3


def test_keeps_data_and_address_over_a_crash(own_broker):
    producer = Producer({"bootstrap.servers": own_broker.address, "acks": "all"})
    producer.produce("crash", b"before")
    assert producer.flush(30) == 0
    assert own_broker.do("restart", "--crash") == own_broker.address
    producer.produce("crash", b"after")
    assert producer.flush(30) == 0
    from confluent_kafka import Consumer
    consumer = Consumer({"bootstrap.servers": own_broker.address, "group.id": "g",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["crash"])
    values = []
    for _ in range(100):
        message = consumer.poll(0.2)
        if message and not message.error():
            values.append(message.value())
        if len(values) == 2:
            break
    consumer.close()
    assert values == [b"before", b"after"]
