"""The Shakespeare LSTM with TensorFlow's initial values, for the table fedavg-shakespeare-start."""

from dataclasses import replace

import torch
from torch import nn

from tasks.shakespeare import SHAKESPEARE_LSTM, CharacterLSTM


class TensorFlowLSTM(CharacterLSTM):
    """`CharacterLSTM` with TensorFlow's start: Glorot's weights, biases 0, the forget gate's 1.

    PyTorch draws the embedding from N(0, 1), everything else from U(-1/16, 1/16).
    """

    def __init__(self) -> None:
        super().__init__()
        nn.init.xavier_uniform_(self.embedding.weight)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        hidden = self.lstm.hidden_size
        for layer in range(self.lstm.num_layers):
            inputs = getattr(self.lstm, f"weight_ih_l{layer}")
            recurrent = getattr(self.lstm, f"weight_hh_l{layer}")
            # TensorFlow's is one matrix, of inputs and state together to all four gates.
            kernel = torch.empty(4 * hidden, inputs.shape[1] + hidden)
            nn.init.xavier_uniform_(kernel)
            with torch.no_grad():
                inputs.copy_(kernel[:, : inputs.shape[1]])
                recurrent.copy_(kernel[:, inputs.shape[1] :])
            bias = getattr(self.lstm, f"bias_ih_l{layer}")
            nn.init.zeros_(bias)
            nn.init.ones_(bias[hidden : 2 * hidden])  # gates: input, forget, cell, output
            nn.init.zeros_(getattr(self.lstm, f"bias_hh_l{layer}"))


TASK = replace(SHAKESPEARE_LSTM, model=TensorFlowLSTM)
