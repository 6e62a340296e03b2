import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedavg_app.server.message_size import message_bytes

pytestmark = pytest.mark.usefixtures("server_identity")


def message(**records):
    return Message(RecordDict(records), dst_node_id=5, message_type="train")


def test_bytes_of_values_and_names_are_counted_by_hand():
    array = Array(np.zeros(10, dtype=np.float32))
    assert len(array.data) == 128 + 40  # NumPy's header and ten floats
    counted = message_bytes(
        message(
            arrays=ArrayRecord({"w": array}),
            metrics=MetricRecord({"n": 3, "list": [1.0, 2.0]}),
            config=ConfigRecord({"text": "äb", "empty": "", "on": True, "raw": b"123", "none": []}),
        )
    )
    arrays = 1 + 168
    metrics = (1 + 8) + (4 + 16)
    config = (4 + 3) + (5 + 0) + (2 + 1) + (3 + 3) + (4 + 0)
    assert counted == arrays + metrics + config
