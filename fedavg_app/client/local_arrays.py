"""Arrays of the model that stay on the client, such as FedBN's batch normalisation.

X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: FedBN: Federated Learning on Non-IID Features via Local
Batch Normalization. ICLR 2021, arXiv 2102.07623. A client trains and evaluates the global model
with its own values of these arrays, at first those of the task's initial model. They do not travel,
and the server's model keeps the initial values.
"""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from strategies.rounds.aggregation import finite_or_sent
from strategies.rounds.flower_arrays import array_record, find_record, from_record, get_record
from strategies.rounds.messages import ARRAYS, CONFIG

# The record of a client's state that keeps them.
LOCAL = "local-arrays"
# The record of the reply to a test by a client that has none of its own yet.
UNTRAINED = "untrained"


def patterns(local_arrays: str) -> list[str]:
    """Return the patterns of the key "local-arrays", which are separated by commas."""
    return [pattern for part in local_arrays.split(",") if (pattern := part.strip())]


def keep_local_arrays(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Handle a message with the client's own values of the arrays that "local-arrays" names.

    New values are kept once training has succeeded; if it gave NaN or infinity that was not sent,
    the old values are kept.
    """
    if not context.run_config.get("local-arrays"):
        return call_next(message, context)
    # Not at the top: it imports torch.
    from fedavg_app.client.client_process import client_process

    config = get_record(message.content, CONFIG, ConfigRecord)
    initial = client_process(context.node_config, context.run_config, config).local_arrays
    received = get_record(message.content, ARRAYS, ArrayRecord)
    kept = find_record(context.state, LOCAL, ArrayRecord)
    message.content[ARRAYS] = array_record({**received, **(kept or initial)})
    reply = call_next(message, context)
    trained = find_record(reply.content, ARRAYS, ArrayRecord)
    if trained is None and kept is None:
        reply.content[UNTRAINED] = ConfigRecord({"local-arrays": False})
    if trained is not None:
        own = array_record({name: trained.pop(name) for name in initial})
        first = from_record(initial)
        if all(finite_or_sent(array, first[name]) for name, array in from_record(own).items()):
            context.state[LOCAL] = own
    return reply
