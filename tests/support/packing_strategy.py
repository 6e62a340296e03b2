"""A strategy whose mod changes the records of a message, for tests of what goes around it."""

from flwr.app import ConfigRecord, RecordDict

from strategies.fedavg import FedAvg
from tests.support import client_mods


class PackingFedAvg(FedAvg):
    """FedAvg that sends the model in a record that the handler does not know."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        for message in messages:
            message.content["packed"] = message.content.pop("arrays")
        return messages

    def client_mod(self, message, context, call_next):
        client_mods.calls.append("strategy")
        if "packed" in message.content:
            content = dict(message.content)
            message.content = RecordDict({"arrays": content["packed"], "config": content["config"]})
        reply = call_next(message, context)
        context.state["done"] = ConfigRecord({"records": list(reply.content)})
        return reply
