"""What runs on the server and the devices of a deployment, beside the Flower app itself."""
