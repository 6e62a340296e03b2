"""The commands of the documents that the tests do not run, by the reason."""

NOT_RUN = {
    "It installs packages from a registry, GB of them.": [
        "python3 -m venv .venv", ".venv/bin/pip install -e .",
        "pip install -e '.[simulation]'", "pip install -e '.[wandb]'", "make docs",
        "pip install mlflow-skinny",
        "pip install 'fedavg-app[simulation]'",
        "pip install 'dist/fedavg_app-0.1.0-py3-none-any.whl[simulation]'",
        "pip install 'fedavg-app[lora]'", "pip install 'fedavg-app[metrics]'",
        "pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu",
        ".venv/bin/pip install --index-url https://download.pytorch.org/whl/cpu torch torchvision",
        "pip download --only-binary=:all: --no-deps --dest wheels --index-url "
        "https://download.pytorch.org/whl/cpu --platform manylinux_2_28_aarch64 --python-version "
        "3.11 torch torchvision",
        ".venv/bin/pip install --find-links wheels torch torchvision",
    ],
    "It would put this copy of the project into the tests' environment.": ["pip install -e ."],
    "It would change the environment of the tests; test_document_examples.py builds that package "
    "and runs what is in the wheel.": ["pip install --no-deps --editable /path/to/that/folder"],
    "It runs these tests.": [
        "make test", "make test-slow", "make test-all", "make test FLWR=1.42.0", "make lint test",
        "python -m pytest -s tests/e2e/test_any_flower_app.py",
        "python -m pytest tests/integration/test_other_language.py",
    ],
    "It needs an account, or what was published with one.": [
        "flwr new @PUBLISHER/fedavg-app", "cd fedavg-app", "flwr login", "flwr app publish .",
        "flwr app publish",
    ],
    "It needs the Hugging Face hub; test_own_files.py trains on a folder as it makes them.": [
        "flwr-datasets create ylecun/mnist --num-partitions 3 --out-dir demo_data",
        "hf download flwrlabs/femnist --repo-type dataset --local-dir femnist",
        "python simulation.py run --task femnist_task:TASK --partition natural --num-clients 500 "
        "--fraction-train 0.02 --local-epochs 1 --num-server-rounds 200",
    ],
    "A server, devices and a network: test_literal_deployment.py runs it there.": [
        "deployment/superlink.sh certificates", "flwr supernode register device-0.pub deployment",
        "deployment/supernode.sh superlink.example.org:8000 certificates/ca.crt device-0 "
        '"partition-id=0 num-partitions=3"',
        'flwr run . deployment --stream -c "num-clients=3 fraction-train=1.0 num-server-rounds=3"',
        "flwr ls deployment", "flwr supernode list deployment",
        'curl --cacert certificates/ca.crt -s -o /dev/null -w "%{http_code}\\n" '
        "https://superlink.example.org:8000/health",
        "curl --cacert certificates/ca.crt --fail https://localhost:8000/health",
        "curl --cacert certificates/ca.crt --fail https://localhost:8000/metrics",
    ],
    "A server and devices: test_deployment.py and test_access.py do the same.": [
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flower-superlink --insecure",
        "flower-supernode --superlink 127.0.0.1:8000 --insecure --port 9094 --node-config "
        "'partition-id=0 data-dir=\"/absolute/path/to/demo_data/partition_0\"'",
        'flwr run . deployment --stream -c "num-clients=3 fraction-train=1.0"',
        "deployment/supernode.sh superlink.example.org:8000 certificates/ca.crt device-0 "
        "'partition-id=0 data-dir=\"/path/to/own/data\"'",
        "flwr supernode unregister NODE-ID deployment",
        "deployment/superlink.sh certificates --log-file superlink.log",
        "deployment/superlink.sh certificates --max-reply-bytes 50000000",
        "sqlite3 certificates/superlink.db VACUUM",
        'sqlite3 certificates/superlink.db ".backup superlink-before.db"',
        "ssh -N -L 8000:localhost:8000 superlink.example.org",
    ],
    "A server and devices: test_javascript_devices.py does the same.": [
        "deployment/superlink.sh certificates --allow-origin https://page.example.org",
        "python3 -m http.server 8080 --bind localhost --directory examples/javascript",
        "flwr supernode register phone.pub deployment",
        "flwr supernode register device-1.pub deployment",
        "NODE_EXTRA_CA_CERTS=certificates/ca.crt node examples/javascript/node.mjs "
        "https://superlink.example.org:8000 device-1 1 train-images-idx3-ubyte.gz "
        "train-labels-idx1-ubyte.gz",
    ],
    "It needs systemd.": ["systemctl status fedavg-superlink", "journalctl -u fedavg-superlink"],
    "It needs Docker.": [
        "docker compose -f deployment/compose.yaml cp device-0.pub superlink:/state/",
        "docker compose -f deployment/compose.yaml exec superlink flwr supernode register "
        "/state/device-0.pub deployment",
        "docker compose -f deployment/compose.yaml exec superlink flwr run /app deployment "
        '--stream -c "num-clients=3 fraction-train=1.0 num-server-rounds=3"',
    ],
    "It needs a GPU.": ["make gpu-check"],
    "It makes 23 runs; test_plan.py has a plan of two methods.": [
        "fedavg plan mnist-logistic --num-clients 50 --batch-size 20 --partition shards "
        '--num-server-rounds 150 --budget "1.5 MB up"',
        "fedavg plan mnist-2nn --num-clients 50 --partition shards --num-server-rounds 150 "
        '--budget "8 MB up"',
    ],
    "It needs full MNIST, and makes three runs; test_board.py enters a strategy.": [
        "python -m paper enter fedavgm:FedAvgM --board mnist-2nn",
        "python -m paper enter fedavgm:FedAvgM --board mnist-2nn --data-dir /path/to/mnist",
        'python -m paper enter stc --strategy-args "sparsity-up = 0.04, sparsity-down = 0.04" '
        '--set local-epochs=5 --name "STC, p = 1/25, E = 5" --board mnist-2nn '
        "--data-dir /path/to/mnist",
    ],
    "It needs a second machine; test_ray_nodes.py has two Ray nodes.": [
        "ray start --head --port=6379", "ray start --address=FIRST:6379",
        "python simulation.py run --ray-address FIRST:6379 --num-workers 8",
    ],
    "It takes minutes.": [
        "make hashes", "python -m benchmarks.step",
    ],
    "It serves until it is stopped.": ["tensorboard --logdir runs"],
}  # fmt: skip
